// GCC 13 moved the set-up of `std::cout` and its siblings from every unit that includes <iostream>
// into libstdc++ itself; an older libstdc++ waits to be asked. Units of such a compiler refer to
// the function below, which brings this member in, and its constructor asks.
#define HIDDEN extern "C" __attribute__((visibility("hidden")))
extern "C" void _ZNSt8ios_base4InitC1Ev(void *);  // std::ios_base::Init::Init()

HIDDEN void _ZSt21ios_base_library_initv() {}  // std::ios_base_library_init()

__attribute__((constructor(101))) static void set_up() {
  static char init;
  _ZNSt8ios_base4InitC1Ev(&init);
}
