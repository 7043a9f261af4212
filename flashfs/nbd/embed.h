/* The part of the plugin that runs before there is an interpreter, and nbdkit's table of callbacks.
 *
 * nbdkit loads the compiled module as its plugin. Once its socket listens, start() brings the interpreter into its
 * process, which imports the same module once more: one copy of it, so that what it sets up there answers nbdkit's
 * threads. libpython is preloaded by whoever starts nbdkit (flashfs/nbd/server.py), as modules do not name it.
 */
#ifndef FLASHFS_EMBED_H
#define FLASHFS_EMBED_H

#include <Python.h>
#include <stdlib.h>
#include <string.h>

#define NBDKIT_API_VERSION 2
#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#include <nbdkit-plugin.h>

/* They are in nbdkit itself: weak, so that the module can be imported elsewhere too, where nobody calls them. */
#pragma weak nbdkit_error
#pragma weak nbdkit_set_error
#pragma weak nbdkit_add_extent

static char *given_python, *given_request;
static PyThreadState *main_thread;  /* the interpreter is there, and nobody has it */

static int on_config(const char *key, const char *value)
{
    char **into = NULL;

    if (strcmp(key, "python") == 0)
        into = &given_python;
    else if (strcmp(key, "request") == 0)
        into = &given_request;
    if (into == NULL) {
        nbdkit_error("%s: python and request would do; `flashfs nbd` gives them", key);
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

/* The socket listens, and nobody is answered yet. The image is opened here, so that no taken port leaves a recovery. */
static int on_start(void)
{
    if (begin_python() < 0)
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
