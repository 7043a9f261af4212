/* The part of the plugin that runs before there is an interpreter, and nbdkit's table of callbacks.
 *
 * nbdkit loads the compiled module as its plugin. Once its socket listens, on_start() brings the interpreter into its
 * process, which imports the same module once more. There is one copy of it, so nbdkit's threads use what Python sets
 * up in it. flashfs/nbd/server.py, which starts nbdkit, preloads libpython, since modules do not name it.
 */
#ifndef FLASHFS_EMBED_H
#define FLASHFS_EMBED_H

#include <Python.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
/* One thread for each connection. With several, nbdkit 1.32 sends on a socket that another of them has closed, and
 * aborts, when a client leaves before it has read what it asked for. It does so in one thread too if a reply has
 * several extents: so ours have one (Export.tell_extents). */
#define THREAD_MODEL NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS
#include <nbdkit-plugin.h>

#include "../fuse/foreign_thread.h"

/* They are in nbdkit itself. Weak, so that the module can be imported elsewhere too, where they are not called. */
#pragma weak nbdkit_error
#pragma weak nbdkit_set_error
#pragma weak nbdkit_add_extent

#define MOST_DESCRIPTORS 65536
#define AGAIN_US 100000
#define PATIENCE_US 5000000  /* for a client that does not read its answers */

static char *given_python, *given_request;
static PyThreadState *main_thread;  /* set while the interpreter is there and its main thread is not in it */

static int on_config(const char *key, const char *value)
{
    char **into = NULL;

    if (strcmp(key, "python") == 0)
        into = &given_python;
    else if (strcmp(key, "request") == 0)
        into = &given_request;
    if (into == NULL) {
        nbdkit_error("%s: use python and request, which `flashfs nbd` gives", key);
        return -1;
    }
    free(*into);
    *into = strdup(value);
    return *into ? 0 : -1;
}

static int on_config_complete(void)
{
    if (given_python && given_request)
        return 0;
    nbdkit_error("this plugin is started by `flashfs nbd`");
    return -1;
}

static int begin_python(void)
{
    PyConfig config;
    PyStatus status;

    PyConfig_InitPythonConfig(&config);
    config.install_signal_handlers = 0;  /* they are nbdkit's */
    config.parse_argv = 0;
    status = PyConfig_SetBytesString(&config, &config.program_name, given_python);
    if (!PyStatus_Exception(status))
        status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (!PyStatus_Exception(status))
        return 0;
    nbdkit_error("no interpreter: %s", status.err_msg ? status.err_msg : "it gives no reason");
    return -1;
}

/* flashfs.nbd.plugin.NAME(ARGUMENT): what it returns; -1 if it raises. */
static int call(const char *name, const char *argument)
{
    int result = -1;
    PyObject *module = PyImport_ImportModule("flashfs.nbd.plugin");
    PyObject *said = module ? PyObject_CallMethod(module, name, "s", argument) : NULL;

    if (said)
        result = (int) PyLong_AsLong(said);
    if (PyErr_Occurred()) {
        PyErr_Print();
        result = -1;
    }
    Py_XDECREF(said);
    Py_XDECREF(module);
    return result;
}

/* When nbdkit is asked to end, it waits until each client has left. So the connections are shut down for further
 * requests; those that were sent are answered. After PATIENCE_US the connections that are still there are shut down
 * altogether, as that of a client that does not read its answers. */
static struct sigaction of_nbdkit[NSIG];
static sem_t asked_to_end;

static void on_signal(int number, siginfo_t *info, void *context)
{
    const struct sigaction *first = &of_nbdkit[number];

    if (first->sa_flags & SA_SIGINFO)
        first->sa_sigaction(number, info, context);
    else if (first->sa_handler != SIG_DFL && first->sa_handler != SIG_IGN)
        first->sa_handler(number);
    sem_post(&asked_to_end);
}

static void *hang_up(void *unused)
{
    const long most = sysconf(_SC_OPEN_MAX);
    struct sockaddr_storage peer;
    long waited_us;
    int fd;

    while (sem_wait(&asked_to_end) != 0)
        ;
    for (waited_us = 0;; waited_us += AGAIN_US) {  /* one may have been accepted just before */
        for (fd = 3; fd < most && fd < MOST_DESCRIPTORS; fd++) {
            socklen_t size = sizeof peer;
            if (getpeername(fd, (struct sockaddr *) &peer, &size) == 0)
                shutdown(fd, waited_us < PATIENCE_US ? SHUT_RD : SHUT_RDWR);
        }
        usleep(AGAIN_US);
    }
    return unused;
}

static int watch_signals(void)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigset_t all, before;
    pthread_t thread;
    size_t i;
    int failed;

    sem_init(&asked_to_end, 0, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  /* signals are for nbdkit's threads */
    failed = pthread_create(&thread, NULL, hang_up, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        nbdkit_error("no thread: %s", strerror(failed));
        return -1;
    }
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        sigaction(numbers[i], NULL, &of_nbdkit[numbers[i]]);
        sigaction(numbers[i], &ours, NULL);
    }
    return 0;
}

/* The socket listens, and no client is answered yet. The image is opened only here, after the port was free: else it
 * would be recovered for nothing. */
static int on_start(void)
{
    if (watch_signals() < 0 || begin_python() < 0)
        return -1;
    if (call("start", given_request) < 0)
        return -1;
    main_thread = PyEval_SaveThread();
    return 0;
}

/* No client is left. */
static void on_end(void)
{
    if (main_thread == NULL)
        return;
    PyEval_RestoreThread(main_thread);
    call("stop", "");
    main_thread = PyEval_SaveThread();
}

static struct nbdkit_plugin plugin = {
    .name = "flashfs",
    .longname = "an SSD in a sparse file",
    .config = on_config,
    .config_complete = on_config_complete,
    .after_fork = on_start,
    .cleanup = on_end,
};

static void add_callbacks(struct nbdkit_plugin *);  /* _plugin.pyx */

NBDKIT_DLL_PUBLIC struct nbdkit_plugin *plugin_init(void);
NBDKIT_DLL_PUBLIC struct nbdkit_plugin *plugin_init(void)
{
    plugin._struct_size = sizeof plugin;
    plugin._api_version = NBDKIT_API_VERSION;
    plugin._thread_model = THREAD_MODEL;
    add_callbacks(&plugin);
    return &plugin;
}

#endif
