// Registration of a kernel's operators and of the Python module that carries them.
//
// This file contains only macros, so that it compiles fast; include Torch's own header
// for the registration macros first. In a binding:
//
//     #include <torch/library.h>            // or <torch/csrc/stable/library.h>
//     #include "registration.h"
//
//     TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
//       ops.def("relu(Tensor x) -> Tensor");
//     }
//
//     TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
//       ops.impl("relu", &relu);
//     }
//
//     REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
//
// The build defines TORCH_EXTENSION_NAME. It is unique per kernel, backend and revision, and is both
// the namespace of the operators and the name of the extension module, so several versions of one
// kernel can be loaded into one process.

#pragma once

// Python's limited API of 3.9: one binary works with every later Python.
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x03090000
#endif

#define KBUILD_CONCAT_(A, B) A##B
#define KBUILD_CONCAT(A, B) KBUILD_CONCAT_(A, B)
#define KBUILD_STRINGIFY_(A) #A
#define KBUILD_STRINGIFY(A) KBUILD_STRINGIFY_(A)

#ifndef CONCAT
#define CONCAT(A, B) KBUILD_CONCAT(A, B)
#endif

#ifndef STRINGIFY
#define STRINGIFY(A) KBUILD_STRINGIFY(A)
#endif

// TORCH_LIBRARY and its siblings paste their arguments, so a macro such as TORCH_EXTENSION_NAME must
// be expanded first. These wrappers do only that.
#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
#define TORCH_LIBRARY_FRAGMENT_EXPAND(NAME, MODULE) TORCH_LIBRARY_FRAGMENT(NAME, MODULE)
#define TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)
#define STABLE_TORCH_LIBRARY_EXPAND(NAME, MODULE) STABLE_TORCH_LIBRARY(NAME, MODULE)
#define STABLE_TORCH_LIBRARY_FRAGMENT_EXPAND(NAME, MODULE) STABLE_TORCH_LIBRARY_FRAGMENT(NAME, MODULE)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) \
  STABLE_TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)

#if defined(__has_include) && __has_include(<Python.h>)

#include <Python.h>

#define KBUILD_MODULE_INIT PyMODINIT_FUNC
#define KBUILD_MODULE_HEAD PyModuleDef_HEAD_INIT
#define KBUILD_MODULE_CREATE(DEF) PyModule_Create(DEF)

#else  // A machine without Python's headers: the few declarations that the stable ABI fixes (PEP 384).

#include <cstddef>

extern "C" {

typedef struct _object PyObject;

struct KbuildPyObject {
  std::ptrdiff_t ob_refcnt;
  void *ob_type;
};

struct KbuildPyModuleDefBase {
  KbuildPyObject ob_base;
  PyObject *(*m_init)();
  std::ptrdiff_t m_index;
  PyObject *m_copy;
};

struct PyModuleDef {
  KbuildPyModuleDefBase m_base;
  const char *m_name;
  const char *m_doc;
  std::ptrdiff_t m_size;
  void *m_methods;
  void *m_slots;
  int (*m_traverse)(PyObject *, int (*)(PyObject *, void *), void *);
  int (*m_clear)(PyObject *);
  void (*m_free)(void *);
};

#if defined(_WIN32)
__declspec(dllimport)
#endif
PyObject *PyModule_Create2(PyModuleDef *def, int abi_version);

}  // extern "C"

#if defined(_WIN32)
#define KBUILD_MODULE_INIT extern "C" __declspec(dllexport) PyObject *
#else
#define KBUILD_MODULE_INIT extern "C" __attribute__((visibility("default"))) PyObject *
#endif

#define KBUILD_MODULE_HEAD {{1, nullptr}, nullptr, 0, nullptr}
#define KBUILD_MODULE_CREATE(DEF) PyModule_Create2(DEF, 3)  // 3: PYTHON_ABI_VERSION

#endif

// Defines PyInit_<NAME>. The module is empty: importing it loads the library, and loading the library
// registers the operators.
#define REGISTER_EXTENSION(NAME)                                                             \
  KBUILD_MODULE_INIT KBUILD_CONCAT(PyInit_, NAME)() {                                        \
    static PyModuleDef module = {KBUILD_MODULE_HEAD, KBUILD_STRINGIFY(NAME), nullptr, 0,      \
                                 nullptr,            nullptr,                nullptr, nullptr, \
                                 nullptr};                                                   \
    return KBUILD_MODULE_CREATE(&module);                                                    \
  }
