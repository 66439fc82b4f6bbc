// glibc 2.38: headers send C++ and GNU C to these names, which also read C23's `0b101`. The older
// functions do not know that prefix; everything else is the same. No header of glibc is included: it
// would redirect the older names back to the newer ones.
#include <stdarg.h>

#define HIDDEN extern "C" __attribute__((visibility("hidden")))
typedef struct __locale_struct *locale;
typedef struct stream stream;

#define NUMBER(type, name, character)                                                             \
  extern "C" type name(const character *, character **, int);                                     \
  HIDDEN type __isoc23_##name(const character *text, character **end, int base) {                 \
    return name(text, end, base);                                                                 \
  }
#define NUMBER_IN(type, name, character)                                                          \
  extern "C" type name(const character *, character **, int, locale);                             \
  HIDDEN type __isoc23_##name(const character *text, character **end, int base, locale in) {      \
    return name(text, end, base, in);                                                             \
  }

NUMBER(long, strtol, char)
NUMBER(unsigned long, strtoul, char)
NUMBER(long long, strtoll, char)
NUMBER(unsigned long long, strtoull, char)
NUMBER(long, strtoimax, char)
NUMBER(unsigned long, strtoumax, char)
NUMBER(long, wcstol, __WCHAR_TYPE__)
NUMBER(unsigned long, wcstoul, __WCHAR_TYPE__)
NUMBER(long long, wcstoll, __WCHAR_TYPE__)
NUMBER(unsigned long long, wcstoull, __WCHAR_TYPE__)
NUMBER_IN(long, strtol_l, char)
NUMBER_IN(unsigned long, strtoul_l, char)
NUMBER_IN(long long, strtoll_l, char)
NUMBER_IN(unsigned long long, strtoull_l, char)

extern "C" int __isoc99_vscanf(const char *, va_list);
extern "C" int __isoc99_vsscanf(const char *, const char *, va_list);
extern "C" int __isoc99_vfscanf(stream *, const char *, va_list);

HIDDEN int __isoc23_vscanf(const char *format, va_list into) {
  return __isoc99_vscanf(format, into);
}
HIDDEN int __isoc23_vsscanf(const char *text, const char *format, va_list into) {
  return __isoc99_vsscanf(text, format, into);
}
HIDDEN int __isoc23_vfscanf(stream *from, const char *format, va_list into) {
  return __isoc99_vfscanf(from, format, into);
}

#define SCAN(call)                                                                                \
  va_list into;                                                                                   \
  va_start(into, format);                                                                         \
  int found = call;                                                                               \
  va_end(into);                                                                                   \
  return found;

HIDDEN int __isoc23_scanf(const char *format, ...) { SCAN(__isoc99_vscanf(format, into)) }
HIDDEN int __isoc23_sscanf(const char *text, const char *format, ...) {
  SCAN(__isoc99_vsscanf(text, format, into))
}
HIDDEN int __isoc23_fscanf(stream *from, const char *format, ...) {
  SCAN(__isoc99_vfscanf(from, format, into))
}
