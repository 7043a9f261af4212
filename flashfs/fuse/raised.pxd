"""The exception that a function without the GIL left pending, for a caller that answers in C and cannot raise it."""
from cpython.exc cimport PyErr_Fetch, PyErr_NormalizeException
from cpython.ref cimport PyObject, Py_XDECREF
from libc.errno cimport EIO
from libc.stdint cimport uint64_t


cdef inline int errno_of_raised(object errno_of, object fail_if_lost, object operation, uint64_t offset) noexcept:
    """The errno that ``errno_of`` gives for the pending exception, which is cleared; EIO if none is pending. If
    ``fail_if_lost`` raises, that error is used, since it says more."""
    cdef PyObject* kind = NULL
    cdef PyObject* value = NULL
    cdef PyObject* trace = NULL
    cdef int code = EIO
    PyErr_Fetch(&kind, &value, &trace)
    PyErr_NormalizeException(&kind, &value, &trace)
    try:
        if value != NULL:
            code = errno_of(operation, offset, <object> value)
        fail_if_lost()
    except Exception as error:
        code = errno_of(operation, offset, error)
    finally:
        Py_XDECREF(kind)
        Py_XDECREF(value)
        Py_XDECREF(trace)
    return code
