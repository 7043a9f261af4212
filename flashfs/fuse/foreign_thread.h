/* A thread that Python did not make has a thread state only while it has the GIL, and an exception is kept in that
 * state. The engine takes the GIL only for the moment in which it raises, and looks for the exception later. So each
 * thread of a library that calls the engine gets a state that lasts until the thread ends. */
#ifndef FLASHFS_FOREIGN_THREAD_H
#define FLASHFS_FOREIGN_THREAD_H

#include <Python.h>
#include <pthread.h>

static pthread_key_t state_of_thread;
static pthread_once_t state_of_thread_once = PTHREAD_ONCE_INIT;

static void drop_state(void *state)
{
    if (!Py_IsInitialized())  /* the interpreter has ended, and all states with it */
        return;
    PyEval_RestoreThread((PyThreadState *) state);
    PyThreadState_Clear((PyThreadState *) state);
    PyThreadState_DeleteCurrent();
}

static void make_state_key(void) { pthread_key_create(&state_of_thread, drop_state); }

/* Call without the GIL. Quick for a thread that has its state. */
static void keep_state(void)
{
    static __thread int kept;

    if (kept)
        return;
    kept = 1;
    pthread_once(&state_of_thread_once, make_state_key);
    PyGILState_Ensure();
    pthread_setspecific(state_of_thread, PyEval_SaveThread());
}

#endif
