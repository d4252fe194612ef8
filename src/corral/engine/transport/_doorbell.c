/* Doorbells on futexes, and the thread that ends a worker whose parent is gone.

   doorbell.py states the contract and lifeline.py the reasons; this file is the part
   that must be fast, or must run while an environment holds the GIL.

   A bell is some words on one cache line of the block:

       count      rings so far, modulo 2^32                     written by ringers
       target     what the waiter waits for                     written by the waiter
       sleeping   1 while the waiter sleeps, and the futex      written by both
       stopped    1 once the lifeline was cut                   written by the watcher
       core       the one on which the waiter went to sleep     written by the waiter

   Why no wake-up is lost: the waiter stores target, then sleeping, then loads count; a
   ringer adds to count, then loads sleeping, then target. In the single order of
   sequentially consistent atomics, either the waiter sees the ring or the ringer sees
   the waiter. A ringer late from an earlier wait may wake a later one for nothing, so
   the waiter loops. The futex is not FUTEX_PRIVATE: it joins processes. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sched.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CACHE_LINE_BYTES 64
#define SECOND 1000000000LL
#define LONGEST_SLEEP (SECOND / 4)
#define FOR_EVER INT64_MAX
#define PAUSES_PER_CLOCK 32

typedef struct {
    _Atomic uint32_t count;
    _Atomic uint32_t target;
    _Atomic uint32_t sleeping;
    _Atomic uint32_t stopped;
    uint32_t eager; /* the Python twin's */
    _Atomic uint32_t core;
} Line;

typedef enum { REACHED, EXPIRED, WOKEN } Outcome;

/* ---- the bell itself: no Python below this line until the next heading ---- */

static inline int has_reached(uint32_t count, uint32_t target)
{
    return (int32_t)(count - target) >= 0;
}

static int64_t read_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static void wake(Line *line)
{
    /* The ringer that clears the word makes the call: one system call per sleep. */
    if (atomic_exchange(&line->sleeping, 0))
        syscall(SYS_futex, &line->sleeping, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static inline void wake_if_reached(Line *line, uint32_t count)
{
    if (atomic_load(&line->sleeping) && has_reached(count, atomic_load(&line->target)))
        wake(line);
}

static inline void ring(Line *line, uint32_t rings)
{
    wake_if_reached(line, atomic_fetch_add(&line->count, rings) + rings);
}

static Outcome spin(Line *line, uint32_t target, int64_t until)
{
    do {
        for (int pauses = 0; pauses < PAUSES_PER_CLOCK; pauses++) {
            if (has_reached(atomic_load(&line->count), target))
                return REACHED;
            pause_cpu();
        }
        /* The process we wait for may be waiting for this very core: a parent on a machine
           that has as many cores as workers. */
        sched_yield();
    } while (read_clock() < until);
    return WOKEN;
}

static Outcome sleep_once(Line *line, uint32_t target, int64_t deadline)
{
    atomic_store(&line->target, target);
    atomic_store(&line->core, (uint32_t)sched_getcpu());
    atomic_store(&line->sleeping, 1);
    Outcome outcome = WOKEN;
    int64_t remaining = deadline - read_clock();
    if (has_reached(atomic_load(&line->count), target)) {
        outcome = REACHED;
    } else if (remaining <= 0 || atomic_load(&line->stopped)) {
        outcome = EXPIRED;
    } else {
        int64_t slice = remaining < LONGEST_SLEEP ? remaining : LONGEST_SLEEP;
        struct timespec limit = {slice / SECOND, slice % SECOND};
        syscall(SYS_futex, &line->sleeping, FUTEX_WAIT, 1, &limit, NULL, 0);
        if (has_reached(atomic_load(&line->count), target))
            outcome = REACHED;
    }
    atomic_store(&line->sleeping, 0);
    return outcome;
}

/* ---- FutexDoorbell ---- */

typedef struct {
    PyObject_HEAD
    Py_buffer memory; /* held, so that the mapping cannot vanish under a waiter */
    Line *line;       /* NULL once closed */
    int waiting;      /* calls now inside wait(); the last one out may have to close */
} Bell;

static uint32_t *find_words(Py_buffer *memory, Py_ssize_t offset, Py_ssize_t size)
{
    char *address = (char *)memory->buf + offset;
    if (offset >= 0 && size <= memory->len && offset <= memory->len - size
        && (uintptr_t)address % sizeof(uint32_t) == 0)
        return (uint32_t *)address;
    PyErr_Format(PyExc_ValueError,
                 "no aligned %zd bytes at offset %zd of a block of %zd bytes", size,
                 offset, memory->len);
    return NULL;
}

static PyObject *bell_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *memory;
    Py_ssize_t offset;
    if (keywords && PyDict_GET_SIZE(keywords)) {
        PyErr_SetString(PyExc_TypeError, "FutexDoorbell takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "On:FutexDoorbell", &memory, &offset))
        return NULL;
    Bell *self = (Bell *)type->tp_alloc(type, 0); /* zeroed */
    if (!self)
        return NULL;
    if (PyObject_GetBuffer(memory, &self->memory, PyBUF_WRITABLE) < 0
        || !(self->line = (Line *)find_words(&self->memory, offset, CACHE_LINE_BYTES))) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *bell_close(Bell *self, PyObject *Py_UNUSED(ignored))
{
    self->line = NULL;
    if (!self->waiting)
        PyBuffer_Release(&self->memory);
    Py_RETURN_NONE;
}

static void bell_dealloc(Bell *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyBuffer_Release(&self->memory);
    type->tp_free(self);
    Py_DECREF(type);
}

static Line *find_line(Bell *self)
{
    if (!self->line)
        PyErr_SetString(PyExc_ValueError, "the doorbell is closed");
    return self->line;
}

static PyObject *bell_ring(Bell *self, PyObject *const *arguments, Py_ssize_t given)
{
    unsigned long rings = 1;
    if (given > 1)
        return PyErr_Format(PyExc_TypeError, "ring() takes at most 1 argument");
    if (given == 1) {
        rings = PyLong_AsUnsignedLongMask(arguments[0]);
        if (rings == (unsigned long)-1 && PyErr_Occurred())
            return NULL;
    }
    if (!find_line(self))
        return NULL;
    ring(self->line, (uint32_t)rings);
    Py_RETURN_NONE;
}

/* Seconds from now as a time on our clock; -1 with an error set if it is no number. */
static int64_t parse_deadline(PyObject *seconds)
{
    if (seconds == Py_None)
        return FOR_EVER;
    double value = PyFloat_AsDouble(seconds);
    if (value == -1.0 && PyErr_Occurred())
        return -1;
    if (!(value > 0))
        return 0;
    return value > 1e9 ? FOR_EVER : read_clock() + (int64_t)(value * SECOND);
}

static Outcome wait_for(Bell *self, uint32_t target, int64_t spin_until,
                        int64_t deadline)
{
    Line *line = self->line; /* close() in another thread may clear self->line */
    Outcome outcome = WOKEN;
    self->waiting++;
    while (outcome == WOKEN) {
        Py_BEGIN_ALLOW_THREADS
        if (spin_until)
            outcome = spin(line, target, spin_until < deadline ? spin_until : deadline);
        if (outcome == WOKEN)
            outcome = sleep_once(line, target, deadline);
        Py_END_ALLOW_THREADS
        spin_until = 0;
        /* Asked after every sleep, not only on EINTR: a signal can come just before
           the sleep, or to another thread. */
        if (outcome == WOKEN && PyErr_CheckSignals() < 0)
            break;
    }
    if (--self->waiting == 0 && !self->line)
        PyBuffer_Release(&self->memory);
    return outcome;
}

static PyObject *bell_wait(Bell *self, PyObject *const *arguments, Py_ssize_t given)
{
    if (given < 1 || given > 3)
        return PyErr_Format(PyExc_TypeError, "wait() takes 1 to 3 arguments");
    unsigned long target = PyLong_AsUnsignedLongMask(arguments[0]);
    if (target == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    if (!find_line(self))
        return NULL;
    if (has_reached(atomic_load(&self->line->count), (uint32_t)target))
        Py_RETURN_TRUE;
    int64_t deadline = given > 1 ? parse_deadline(arguments[1]) : FOR_EVER;
    int64_t spin_until = given > 2 ? parse_deadline(arguments[2]) : 0;
    if (deadline < 0 || spin_until < 0)
        return NULL;
    if (deadline == 0)
        Py_RETURN_FALSE;
    Outcome outcome = wait_for(self, (uint32_t)target, spin_until, deadline);
    return outcome == WOKEN ? NULL : PyBool_FromLong(outcome == REACHED);
}

static PyObject *bell_announce(Bell *self, PyObject *Py_UNUSED(ignored))
{
    if (!find_line(self))
        return NULL;
    atomic_fetch_add(&self->line->count, 1);
    Py_RETURN_NONE;
}

static PyObject *bell_flush(Bell *self, PyObject *Py_UNUSED(ignored))
{
    if (self->line)
        wake_if_reached(self->line, atomic_load(&self->line->count));
    Py_RETURN_NONE;
}

static PyObject *bell_count(Bell *self, void *Py_UNUSED(closure))
{
    return find_line(self) ? PyLong_FromUnsignedLong(atomic_load(&self->line->count))
                           : NULL;
}

static PyObject *bell_sleeps_here(Bell *self, void *Py_UNUSED(closure))
{
    Line *line = self->line; /* of a worker that is being replaced, the bell is closed */
    return PyBool_FromLong(line && atomic_load(&line->core) == (uint32_t)sched_getcpu());
}

static PyObject *bell_descriptor(Bell *Py_UNUSED(self), void *Py_UNUSED(closure))
{
    Py_RETURN_NONE;
}

static PyMethodDef bell_methods[] = {
    {"ring", (PyCFunction)(void (*)(void))bell_ring, METH_FASTCALL,
     "Add to the count and wake the waiter if that is what it waits for."},
    {"wait", (PyCFunction)(void (*)(void))bell_wait, METH_FASTCALL,
     "Wait until the count has reached the target."},
    {"announce", (PyCFunction)bell_announce, METH_NOARGS,
     "Ring for a waiter that spins; one that sleeps is woken by flush."},
    {"flush", (PyCFunction)bell_flush, METH_NOARGS,
     "Show every ring so far to the waiter."},
    {"close", (PyCFunction)bell_close, METH_NOARGS, "Let go of the memory."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef bell_attributes[] = {
    {"count", (getter)bell_count, NULL, "The rings so far, modulo 2**32.", NULL},
    {"sleeps_here", (getter)bell_sleeps_here, NULL,
     "Whether the waiter last went to sleep on the core of this thread.", NULL},
    {"descriptor", (getter)bell_descriptor, NULL, "None: the block is enough.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot bell_slots[] = {
    {Py_tp_doc, "A doorbell on a futex in the block."},
    {Py_tp_new, bell_new},
    {Py_tp_dealloc, bell_dealloc},
    {Py_tp_methods, bell_methods},
    {Py_tp_getset, bell_attributes},
    {0, NULL},
};

static PyType_Spec bell_spec = {
    .name = "corral.engine.transport._doorbell.FutexDoorbell",
    .basicsize = sizeof(Bell),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = bell_slots,
};

/* ---- the watcher ---- */

typedef struct {
    Py_buffer memory; /* never released: the thread lives as long as the process */
    int descriptor;
    _Atomic uint32_t *stop;
    Line *bell;
    int64_t grace;
    char mark[128]; /* what a variable of our children's environment begins with */
} Watch;

/* Whether the process was started with the mark. In pieces that overlap, since an
   environment may be long. */
static int has_mark(long pid, const char *mark)
{
    char path[64], piece[8192];
    size_t length = strlen(mark), kept = 1;
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    piece[0] = 0; /* every variable is behind a NUL, also the first */
    int found = 0;
    ssize_t got;
    while (!found && (got = read(file, piece + kept, sizeof piece - kept)) > 0) {
        size_t size = kept + (size_t)got;
        for (char *at = piece; !found && (size_t)(at - piece) + length < size; at++) {
            at = memchr(at, 0, size - (size_t)(at - piece));
            if (!at || (size_t)(at - piece) + length >= size)
                break;
            found = memcmp(at + 1, mark, length) == 0;
        }
        kept = size < length + 1 ? size : length + 1;
        memmove(piece, piece + size - kept, kept);
    }
    close(file);
    return found;
}

static long parent_of(long pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    text[got > 0 ? got : 0] = 0;
    char *name_end = strrchr(text, ')'); /* a name may have any character */
    long parent;
    return name_end && sscanf(name_end + 1, " %*c %ld", &parent) == 1 ? parent : -1;
}

typedef struct {
    long pid, parent;
    int held; /* a descriptor, or -1 where it is none of ours */
} Process;

static int is_ours(const Process *process, const Process *all, size_t count,
                   const char *mark)
{
    if (process->parent == getpid() || has_mark(process->pid, mark))
        return 1;
    for (size_t i = 0; i < count; i++)
        if (all[i].held >= 0 && all[i].pid == process->parent)
            return 1;
    return 0;
}

/* Hold those of them that descend from us; returns how many were not held before. */
static size_t hold_offspring(Process *all, size_t count, const char *mark)
{
    size_t more = 0;
    for (size_t i = 0; i < count; i++) {
        Process *process = &all[i];
        if (process->held >= 0 || !is_ours(process, all, count, mark))
            continue;
        process->held = (int)syscall(SYS_pidfd_open, process->pid, 0);
        if (process->held < 0)
            continue;
        /* Looked at again: from now on the number cannot be another's. */
        if (parent_of(process->pid) == process->parent) {
            more++;
        } else {
            close(process->held);
            process->held = -1;
        }
    }
    return more;
}

static Process *list_processes(size_t *count)
{
    Process *all = NULL;
    DIR *folder = opendir("/proc");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (pid <= 0 || *end || pid == getpid())
            continue;
        Process *grown = realloc(all, (*count + 1) * sizeof *all);
        if (!grown)
            break;
        all = grown;
        all[(*count)++] = (Process){pid, parent_of(pid), -1};
    }
    if (folder)
        closedir(folder);
    return all;
}

/* Kill our offspring, also what has left our group; see child_processes.py. */
static void end_offspring(const char *mark)
{
    size_t count = 0;
    Process *all = mark[0] ? list_processes(&count) : NULL;
    while (all && hold_offspring(all, count, mark))
        continue;
    for (size_t i = 0; i < count; i++)
        if (all[i].held >= 0)
            syscall(SYS_pidfd_send_signal, all[i].held, SIGKILL, NULL, 0);
}

static void *watch_until_hangup(void *argument)
{
    Watch *watch = argument;
    struct pollfd lifeline = {.fd = watch->descriptor, .events = 0};
    while (poll(&lifeline, 1, -1) < 1)
        continue;
    atomic_store(watch->stop, 1);
    atomic_store(&watch->bell->stopped, 1);
    wake(watch->bell);
    struct timespec grace = {watch->grace / SECOND, watch->grace % SECOND};
    nanosleep(&grace, NULL);
    end_offspring(watch->mark);
    if (getpgrp() == getpid()) /* never a group that another process leads */
        kill(0, SIGKILL);
    kill(getpid(), SIGKILL);
    return NULL;
}

static int start_thread(Watch *watch)
{
    /* All signals blocked: they are for Python's main thread. */
    sigset_t everything, before;
    sigfillset(&everything);
    pthread_sigmask(SIG_SETMASK, &everything, &before);
    pthread_t thread;
    int error = pthread_create(&thread, NULL, watch_until_hangup, watch);
    if (!error) {
        pthread_setname_np(thread, "corral-lifeline");
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static PyObject *watch(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *memory;
    int descriptor;
    Py_ssize_t stop_offset, bell_offset;
    double grace;
    const char *mark = "";
    if (!PyArg_ParseTuple(arguments, "iOnnd|y:watch", &descriptor, &memory,
                          &stop_offset, &bell_offset, &grace, &mark))
        return NULL;
    if (fcntl(descriptor, F_GETFD) < 0) /* poll would take it for a hang-up */
        return PyErr_SetFromErrno(PyExc_OSError);
    Watch *watch = PyMem_RawCalloc(1, sizeof(Watch));
    if (!watch)
        return PyErr_NoMemory();
    watch->descriptor = descriptor;
    if (snprintf(watch->mark, sizeof watch->mark, "%s", mark) >=
        (int)sizeof watch->mark) {
        PyErr_SetString(PyExc_ValueError, "the mark is too long");
        PyMem_RawFree(watch);
        return NULL;
    }
    watch->grace = grace > 0 ? (int64_t)(grace * SECOND) : 0;
    if (PyObject_GetBuffer(memory, &watch->memory, PyBUF_WRITABLE) < 0)
        goto failed;
    watch->stop = (void *)find_words(&watch->memory, stop_offset, sizeof(uint32_t));
    watch->bell = (void *)find_words(&watch->memory, bell_offset, CACHE_LINE_BYTES);
    if (!watch->stop || !watch->bell)
        goto failed;
    errno = start_thread(watch);
    if (!errno)
        Py_RETURN_NONE;
    PyErr_SetFromErrno(PyExc_OSError);
failed:
    PyBuffer_Release(&watch->memory);
    PyMem_RawFree(watch);
    return NULL;
}

/* ---- the module ---- */

static PyMethodDef module_functions[] = {
    {"watch", watch, METH_VARARGS,
     "Start the thread that ends this process when a lifeline hangs up."},
    {NULL, NULL, 0, NULL},
};

static int fill_module(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &bell_spec, NULL);
    if (!type)
        return -1;
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, fill_module},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_doorbell",
    .m_doc = "Doorbells on futexes, and the watcher of a lifeline.",
    .m_size = 0,
    .m_methods = module_functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__doorbell(void)
{
    return PyModuleDef_Init(&module_definition);
}
