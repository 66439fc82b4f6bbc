// ---------------------------------------------------------------------------------------------
// The host's processor: there is no driver

#define KBUILD_AOT_PLATFORM "CPU"
