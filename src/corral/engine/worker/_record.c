/* The C twin of engine/worker/record.py: see there for the contract.
 *
 * One call stores a slot's scalars, which all lie on one cache line, and copies the
 * observation when it is a plain, aligned, C-ordered array of the leaf's type and shape.
 * An info whose keys and types are those it was told to expect goes to its columns.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_20_API_VERSION
#include <numpy/arrayobject.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

#define EPISODE_ENDED 1
#define OBS_UNWRITTEN 2
#define REWARD_UNWRITTEN 4
#define NOTHING_WRITTEN 8
#define HAS_INFOS 2
#define NEEDS_CARE (1 | 4 | 8) /* EPISODE_OVER, EPISODE_LOST, NEXT_EPISODE_DUE */
/* Words of `vitals`, as in engine/layout/plan.py: since when, and at which slot. */
#define BUSY_SINCE 1
#define CURRENT_SLOT 4
#define NO_SLOT -1.0
#define MAX_DIMENSIONS 8
#define BUCKETS 128

/* Offsets as in engine/layout/plan.py DURATIONS_DTYPE. */
typedef struct {
    uint32_t step[BUCKETS], reset[BUCKETS];
    double step_seconds, reset_seconds;
} Times;

/* Offsets as in engine/layout/plan.py RECORD_DTYPE. */
typedef struct {
    double reward;
    double episode_return;
    int64_t seed;
    double step_time;
    int32_t episode_length;
    uint8_t terminated, truncated, started, valid;
} Record;

/* One entry of the infos that are expected, and where it goes. */
typedef struct {
    PyObject *key;
    PyTypeObject *type;
    char *at; /* of the first position */
    npy_intp size;
} Entry;

typedef struct {
    PyObject *kept;    /* what the rest points into, or NULL where none is expected */
    PyObject *columns; /* what a position's presence bytes have to stand for */
    PyObject *written; /* and do stand for: a list by position */
    Py_ssize_t first, row; /* the position of slot 0, and from row to row */
    Py_ssize_t count;
    Entry *entries;
} Expected;

/* "step", interned: how a slot's stepper is called. */
static PyObject *step_name;

typedef struct {
    PyObject_HEAD
    PyArrayObject *records; /* keep the memory alive */
    PyArrayObject *obs;
    char *records_at, *obs_at;
    npy_intp slots, record_row, record_slot, obs_row, obs_slot;
    int dimensions;
    npy_intp shape[MAX_DIMENSIONS];
    PyArrayObject *vitals; /* keeps the memory alive, or NULL */
    double *line, own_line[8];
    Py_buffer done; /* (slots,) of uint32 */
    PyObject *ring; /* or NULL */
    PyObject *guard; /* ends a forked copy of this process, or NULL */
    uint32_t forks;  /* `forks` when the guard was given */
    Py_ssize_t at;  /* the slot that `run` is at */
    PyArrayObject *times; /* keeps the memory alive, or NULL */
    char *times_at;
    npy_intp times_slot;
    Expected expected;
} Recorder;

/* How many forks lie between the first process and this one; see engine/worker/forked_copies.py. */
static uint32_t forks;

static void count_fork(void) { forks++; }

/* After every call of the env's code: the env may have forked, and this be the child,
 * which ends here. 0 if this is still the worker; -1 on error. */
static int check_copied(Recorder *self) {
    if (self->guard == NULL || self->forks == forks)
        return 0;
    PyObject *answer = PyObject_CallNoArgs(self->guard);
    Py_XDECREF(answer);
    return answer == NULL ? -1 : 0;
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* engine/layout/durations.py says the rule. */
static int bucket_of(double seconds) {
    uint64_t nanoseconds = seconds > 0 ? (uint64_t)(seconds * 1e9) : 0;
    if (nanoseconds < 64)
        return 0;
    int exponent = 63 - __builtin_clzll(nanoseconds);
    int bucket = 4 * (exponent - 6) + (int)(nanoseconds >> (exponent - 2) & 3);
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static Times *times_of(Recorder *self, Py_ssize_t slot) {
    return (Times *)(self->times_at + slot * self->times_slot);
}

static int take_times(Recorder *self, PyObject *times) {
    if (times == Py_None)
        return 0;
    PyArrayObject *array = (PyArrayObject *)times;
    if (!PyArray_Check(times) || PyArray_NDIM(array) != 1 ||
        PyArray_DIM(array, 0) != self->slots ||
        PyArray_ITEMSIZE(array) < (npy_intp)sizeof(Times)) {
        PyErr_SetString(PyExc_ValueError, "times must be (slots,) of DURATIONS_DTYPE, or None");
        return -1;
    }
    Py_INCREF(times);
    self->times = array;
    self->times_at = PyArray_BYTES(array);
    self->times_slot = PyArray_STRIDE(array, 0);
    return 0;
}

static int take_vitals(Recorder *self, PyObject *vitals) {
    self->line = self->own_line;
    if (vitals == Py_None)
        return 0;
    PyArrayObject *array = (PyArrayObject *)vitals;
    if (!PyArray_Check(vitals) || PyArray_TYPE(array) != NPY_DOUBLE ||
        PyArray_NDIM(array) != 1 || PyArray_DIM(array, 0) <= CURRENT_SLOT ||
        !PyArray_IS_C_CONTIGUOUS(array)) {
        PyErr_SetString(PyExc_ValueError, "vitals must be a line of doubles, or None");
        return -1;
    }
    Py_INCREF(vitals);
    self->vitals = array;
    self->line = (double *)PyArray_DATA(array);
    return 0;
}

static int Recorder_init(Recorder *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"records", "obs",    "done", "ring",
                            "times",   "vitals", "guard", NULL};
    PyObject *records, *obs, *done, *ring;
    PyObject *times = Py_None, *vitals = Py_None, *guard = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOO|OOO", names, &PyArray_Type,
                                     &records, &obs, &done, &ring, &times, &vitals,
                                     &guard))
        return -1;
    if (self->records != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a recorder is made once");
        return -1;
    }
    PyArrayObject *array = (PyArrayObject *)records;
    if (PyArray_NDIM(array) != 2 || PyArray_DIM(array, 0) != 2 ||
        PyArray_ITEMSIZE(array) < (npy_intp)sizeof(Record)) {
        PyErr_SetString(PyExc_ValueError, "records must be (2, slots) of RECORD_DTYPE");
        return -1;
    }
    self->records_at = PyArray_BYTES(array);
    self->record_row = PyArray_STRIDE(array, 0);
    self->record_slot = PyArray_STRIDE(array, 1);
    self->slots = PyArray_DIM(array, 1);
    if (take_vitals(self, vitals) < 0)
        return -1;
    self->line[BUSY_SINCE] = now();
    if (PyObject_GetBuffer(done, &self->done, PyBUF_WRITABLE) < 0)
        return -1;
    Py_INCREF(records);
    self->records = array;
    if (self->done.len != self->slots * (Py_ssize_t)sizeof(uint32_t)) {
        PyErr_SetString(PyExc_ValueError, "done must be (slots,) of uint32");
        return -1;
    }
    if (ring != Py_None) {
        Py_INCREF(ring);
        self->ring = ring;
    }
    if (guard != Py_None) {
        Py_INCREF(guard);
        self->guard = guard;
        self->forks = forks;
    }
    if (take_times(self, times) < 0)
        return -1;
    if (obs == Py_None)
        return 0;
    if (!PyArray_Check(obs)) {
        PyErr_SetString(PyExc_TypeError, "obs must be an array or None");
        return -1;
    }
    array = (PyArrayObject *)obs;
    int dimensions = PyArray_NDIM(array) - 2;
    if (dimensions < 0 || PyArray_DIM(array, 0) != 2 ||
        PyArray_DIM(array, 1) != self->slots) {
        PyErr_SetString(PyExc_ValueError, "obs must be (2, slots, ...)");
        return -1;
    }
    if (dimensions > MAX_DIMENSIONS)
        return 0; /* such observations take the careful way */
    self->obs_at = PyArray_BYTES(array);
    self->obs_row = PyArray_STRIDE(array, 0);
    self->obs_slot = PyArray_STRIDE(array, 1);
    self->dimensions = dimensions;
    for (int i = 0; i < dimensions; i++)
        self->shape[i] = PyArray_DIM(array, i + 2);
    Py_INCREF(obs);
    self->obs = array;
    return 0;
}

static void forget_expected(Recorder *self) {
    PyObject *kept = self->expected.kept;
    PyMem_Free(self->expected.entries);
    self->expected = (Expected){0};
    Py_XDECREF(kept);
}

static void Recorder_dealloc(Recorder *self) {
    PyTypeObject *type = Py_TYPE(self);
    forget_expected(self);
    if (self->records != NULL)
        PyBuffer_Release(&self->done);
    Py_XDECREF(self->records);
    Py_XDECREF(self->obs);
    Py_XDECREF(self->ring);
    Py_XDECREF(self->guard);
    Py_XDECREF(self->times);
    Py_XDECREF(self->vitals);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* 1 when copied, 0 when the careful way has to look at it. */
static int copy_obs(Recorder *self, npy_intp row, npy_intp slot, PyObject *value) {
    if (self->obs == NULL || !PyArray_CheckExact(value))
        return 0;
    PyArrayObject *array = (PyArrayObject *)value;
    if (PyArray_NDIM(array) != self->dimensions ||
        PyArray_TYPE(array) != PyArray_TYPE(self->obs) ||
        !PyArray_IS_C_CONTIGUOUS(array) || !PyArray_ISNOTSWAPPED(array))
        return 0;
    for (int i = 0; i < self->dimensions; i++)
        if (PyArray_DIM(array, i) != self->shape[i])
            return 0;
    memcpy(self->obs_at + row * self->obs_row + slot * self->obs_slot,
           PyArray_DATA(array), (size_t)PyArray_NBYTES(array));
    return 1;
}

/* 1 when plain, 0 when the careful way has to look at it, -1 on error. */
static int plain_number(PyObject *value, double *number) {
    if (PyFloat_Check(value)) {
        *number = PyFloat_AS_DOUBLE(value);
        return 1;
    }
    if (PyLong_Check(value)) {
        *number = PyLong_AsDouble(value);
        return *number == -1.0 && PyErr_Occurred() ? -1 : 1;
    }
    return 0;
}

/* Stores one transition; returns what is left to do, or -1 on error. */
static long store(Recorder *self, Py_ssize_t row, Py_ssize_t slot, PyObject *obs,
                  PyObject *reward_object, PyObject *terminated_object,
                  PyObject *truncated_object) {
    int terminated = PyObject_IsTrue(terminated_object);
    int truncated = PyObject_IsTrue(truncated_object);
    if (terminated < 0 || truncated < 0)
        return -1;
    double reward = 0.0;
    int plain = plain_number(reward_object, &reward);
    if (plain < 0)
        return -1;
    long left = copy_obs(self, row, slot, obs) ? 0 : OBS_UNWRITTEN;
    char *at = self->records_at + slot * self->record_slot;
    Record *record = (Record *)(at + row * self->record_row);
    Record *previous = (Record *)(at + (1 - row) * self->record_row);
    int fresh = previous->terminated || previous->truncated;
    record->episode_length = fresh ? 1 : previous->episode_length + 1;
    record->episode_return = fresh ? 0.0 : previous->episode_return;
    record->seed = previous->seed; /* the shard writes it where an episode starts */
    if (plain) {
        record->reward = reward;
        record->episode_return += reward;
    } else {
        left |= REWARD_UNWRITTEN;
    }
    record->terminated = (uint8_t)terminated;
    record->truncated = (uint8_t)truncated;
    record->started = 0;
    record->valid = 1;
    double at_end = now();
    double seconds = record->step_time = at_end - self->line[BUSY_SINCE];
    self->line[BUSY_SINCE] = at_end;
    if (self->times != NULL) {
        Times *times = times_of(self, slot);
        times->step[bucket_of(seconds)]++;
        times->step_seconds += seconds;
    }
    return terminated || truncated ? left | EPISODE_ENDED : left;
}

static int in_range(Recorder *self, Py_ssize_t row, Py_ssize_t slot) {
    if (PyErr_Occurred())
        return 0;
    if ((row == 0 || row == 1) && slot >= 0 && slot < self->slots)
        return 1;
    PyErr_Format(PyExc_IndexError, "no row %zd, slot %zd", row, slot);
    return 0;
}

static PyObject *Recorder_record(Recorder *self, PyObject *const *args,
                                 Py_ssize_t count) {
    if (count != 6)
        return PyErr_Format(PyExc_TypeError, "record takes 6 arguments, not %zd", count);
    Py_ssize_t row = PyLong_AsSsize_t(args[0]);
    Py_ssize_t slot = PyLong_AsSsize_t(args[1]);
    if (!in_range(self, row, slot))
        return NULL;
    long left = store(self, row, slot, args[2], args[3], args[4], args[5]);
    return left < 0 ? NULL : PyLong_FromLong(left);
}

/* start(row, slot, seed, valid): a record with no transition behind it. */
static PyObject *Recorder_start(Recorder *self, PyObject *const *args,
                                Py_ssize_t count) {
    if (count != 4)
        return PyErr_Format(PyExc_TypeError, "start takes 4 arguments, not %zd", count);
    Py_ssize_t row = PyLong_AsSsize_t(args[0]);
    Py_ssize_t slot = PyLong_AsSsize_t(args[1]);
    long long seed = PyLong_AsLongLong(args[2]);
    int valid = PyObject_IsTrue(args[3]);
    if (!in_range(self, row, slot) || valid < 0)
        return NULL;
    Record *record = (Record *)(self->records_at + slot * self->record_slot +
                                row * self->record_row);
    *record = (Record){.seed = seed, .started = 1, .valid = (uint8_t)valid};
    Py_RETURN_NONE;
}

/* reset_took(slot, seconds) */
static PyObject *Recorder_reset_took(Recorder *self, PyObject *const *args,
                                     Py_ssize_t count) {
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "reset_took takes 2 arguments, not %zd",
                            count);
    Py_ssize_t slot = PyLong_AsSsize_t(args[0]);
    double seconds = PyFloat_AsDouble(args[1]);
    if (!in_range(self, 0, slot))
        return NULL;
    if (self->times != NULL) {
        Times *times = times_of(self, slot);
        times->reset[bucket_of(seconds)]++;
        times->reset_seconds += seconds;
    }
    self->line[BUSY_SINCE] = now();
    Py_RETURN_NONE;
}

/* Whether an array can take a value of this type by the means of `put`. */
static int is_cell(PyObject *target, PyTypeObject *type, Py_ssize_t positions) {
    if (!PyArray_CheckExact(target))
        return 0;
    PyArrayObject *array = (PyArrayObject *)target;
    if (PyArray_NDIM(array) != 1 || PyArray_DIM(array, 0) != positions ||
        !PyArray_ISCARRAY(array))
        return 0;
    if (type == &PyFloat_Type)
        return PyArray_TYPE(array) == NPY_DOUBLE;
    if (type == &PyLong_Type)
        return PyArray_ITEMSIZE(array) == sizeof(int64_t) && PyArray_ISSIGNED(array);
    if (type == &PyBool_Type)
        return PyArray_TYPE(array) == NPY_BOOL;
    return (PyObject *)type == (PyObject *)PyArray_DESCR(array)->typeobj;
}

/* expect(keys, types, targets, columns, written, first, slots) */
static PyObject *Recorder_expect(Recorder *self, PyObject *const *args,
                                 Py_ssize_t count) {
    if (count != 7 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) ||
        !PyList_CheckExact(args[2]) || !PyTuple_CheckExact(args[3]) ||
        !PyList_CheckExact(args[4]))
        return PyErr_Format(
            PyExc_TypeError,
            "expect(keys, types, targets, columns, written, first, slots)");
    Py_ssize_t first = PyLong_AsSsize_t(args[5]);
    Py_ssize_t slots = PyLong_AsSsize_t(args[6]);
    if (PyErr_Occurred())
        return NULL;
    forget_expected(self);
    Py_ssize_t keys = PyList_GET_SIZE(args[0]), positions = PyList_GET_SIZE(args[4]);
    if (PyList_GET_SIZE(args[1]) != keys || PyList_GET_SIZE(args[2]) != keys ||
        first < 0 || slots > positions / 2 || slots - self->slots < first)
        return PyErr_Format(PyExc_ValueError, "what is expected does not fit together");
    /* Copies, so that no other code can change them. */
    PyObject *kept = Py_BuildValue("(NNNOO)", PyList_AsTuple(args[0]),
                                   PyList_AsTuple(args[1]), PyList_AsTuple(args[2]),
                                   args[3], args[4]);
    Entry *entries = PyMem_New(Entry, keys ? keys : 1);
    if (kept == NULL || entries == NULL) {
        Py_XDECREF(kept);
        PyMem_Free(entries);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    self->expected = (Expected){kept, args[3], args[4], first, slots, keys, entries};
    for (Py_ssize_t i = 0; i < keys; i++) {
        PyObject *type = PyList_GET_ITEM(args[1], i);
        PyObject *target = PyList_GET_ITEM(args[2], i);
        if (!PyType_Check(type) || !is_cell(target, (PyTypeObject *)type, positions)) {
            forget_expected(self);
            Py_RETURN_FALSE;
        }
        PyArrayObject *array = (PyArrayObject *)target;
        entries[i] = (Entry){PyList_GET_ITEM(args[0], i), (PyTypeObject *)type,
                             PyArray_BYTES(array), PyArray_ITEMSIZE(array)};
    }
    Py_RETURN_TRUE;
}

/* 1 when stored; 0 when it does not fit. */
static int put(const Entry *entry, Py_ssize_t position, PyObject *value) {
    char *at = entry->at + position * entry->size;
    if (entry->type == &PyFloat_Type) {
        *(double *)at = PyFloat_AS_DOUBLE(value);
    } else if (entry->type == &PyLong_Type) {
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow)
            return 0;
        *(int64_t *)at = number;
    } else if (entry->type == &PyBool_Type) {
        *(npy_bool *)at = value == Py_True;
    } else {
        PyArray_ScalarAsCtype(value, at);
    }
    return 1;
}

static int same_key(PyObject *key, PyObject *other) {
    if (key == other)
        return 1;
    return PyUnicode_CheckExact(key) && PyUnicode_CheckExact(other) &&
           PyUnicode_Compare(key, other) == 0;
}

/* 1 when the info is in its columns, 0 when it is not as expected.
 * Then some of it may have been written; the shard then writes all of it. */
static int write_expected(Recorder *self, Py_ssize_t row, Py_ssize_t slot,
                          PyObject *info) {
    Expected *expected = &self->expected;
    if (expected->kept == NULL || !PyDict_CheckExact(info) ||
        PyDict_GET_SIZE(info) != expected->count)
        return 0;
    Py_ssize_t position = row * expected->row + expected->first + slot;
    if (position >= PyList_GET_SIZE(expected->written) ||
        PyList_GET_ITEM(expected->written, position) != expected->columns)
        return 0;
    PyObject *key, *value;
    Py_ssize_t place = 0;
    for (Py_ssize_t i = 0; i < expected->count; i++) {
        const Entry *entry = &expected->entries[i];
        if (!PyDict_Next(info, &place, &key, &value) || !same_key(key, entry->key) ||
            Py_TYPE(value) != entry->type || !put(entry, position, value))
            return 0;
    }
    return 1;
}

/* A step's result, if it is the five-tuple with an empty dict that needs no care. */
static int is_step(PyObject *result) {
    return PyTuple_CheckExact(result) && PyTuple_GET_SIZE(result) == 5;
}

static int is_empty(PyObject *info) {
    return PyDict_CheckExact(info) && PyDict_GET_SIZE(info) == 0;
}

static int publish(Recorder *self, Py_ssize_t slot, uint32_t ticket) {
    if (check_copied(self) < 0)
        return 0;
    /* After all that belongs to it: x86 keeps the order of stores, others are told. */
    __atomic_store_n((uint32_t *)self->done.buf + slot, ticket, __ATOMIC_RELEASE);
    if (self->ring == NULL)
        return 1;
    PyObject *rung = PyObject_CallNoArgs(self->ring);
    Py_XDECREF(rung);
    return rung != NULL;
}

/* stepper.step(action). The method is looked up for every step, as it may have been
 * exchanged since the last one; no bound method is made, so that costs nothing. */
static PyObject *call_step(PyObject *steppers, Py_ssize_t slot, PyObject *action) {
    PyObject *stepper = PyList_GET_ITEM(steppers, slot);
    PyObject *arguments[] = {stepper, action};
    Py_INCREF(stepper); /* the step itself may put another in its place */
    PyObject *result = PyObject_VectorcallMethod(
        step_name, arguments, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    Py_DECREF(stepper);
    return result;
}

static PyObject *Recorder_run(Recorder *self, PyObject *const *args,
                              Py_ssize_t count) {
    if (count != 7 || !PyList_CheckExact(args[3]) || !PyIter_Check(args[4]) ||
        !PyByteArray_CheckExact(args[5]))
        return PyErr_Format(PyExc_TypeError,
                            "run(row, slot, stride, steppers, actions, care, ticket)");
    Py_ssize_t row = PyLong_AsSsize_t(args[0]);
    Py_ssize_t first = PyLong_AsSsize_t(args[1]);
    Py_ssize_t stride = PyLong_AsSsize_t(args[2]);
    uint32_t ticket = (uint32_t)PyLong_AsUnsignedLongMask(args[6]);
    PyObject *steppers = args[3], *actions = args[4], *care = args[5];
    if (!in_range(self, row, first))
        return NULL;
    if (stride != 1 && stride != -1)
        return PyErr_Format(PyExc_ValueError, "stride is 1 or -1, not %zd", stride);
    self->line[BUSY_SINCE] = now();
    if (PyList_GET_SIZE(steppers) != self->slots ||
        PyByteArray_GET_SIZE(care) != self->slots)
        return PyErr_Format(PyExc_ValueError, "%zd slots", (Py_ssize_t)self->slots);
    for (self->at = first; 0 <= self->at && self->at < self->slots;
         self->at += stride) {
        self->line[CURRENT_SLOT] = (double)self->at;
        PyObject *action = PyIter_Next(actions);
        if (action == NULL)
            return PyErr_Occurred() ? NULL
                                    : PyErr_Format(PyExc_ValueError, "too few actions");
        if (PyByteArray_AS_STRING(care)[self->at] & NEEDS_CARE) {
            Py_DECREF(action);
            return Py_BuildValue("(iO)", 0, Py_None);
        }
        PyObject *result = call_step(steppers, self->at, action);
        Py_DECREF(action);
        if (result == NULL)
            return NULL; /* the shard asks the guard */
        if (check_copied(self) < 0) {
            Py_DECREF(result);
            return NULL;
        }
        if (!is_step(result))
            return Py_BuildValue("(iN)", NOTHING_WRITTEN, result);
        PyObject **part = &PyTuple_GET_ITEM(result, 0);
        long left = store(self, row, self->at, part[0], part[1], part[2], part[3]);
        if (left < 0) {
            Py_DECREF(result);
            return NULL;
        }
        char noise = PyByteArray_AS_STRING(care)[self->at];
        if (left || noise & ~HAS_INFOS ||
            !(noise ? write_expected(self, row, self->at, part[4]) : is_empty(part[4])))
            return Py_BuildValue("(lN)", left, result);
        Py_DECREF(result);
        self->line[CURRENT_SLOT] = NO_SLOT;
        if (!publish(self, self->at, ticket))
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *Recorder_mark(Recorder *self, PyObject *Py_UNUSED(ignored)) {
    self->line[BUSY_SINCE] = now();
    Py_RETURN_NONE;
}

static PyObject *count_forks(PyObject *Py_UNUSED(module),
                             PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromUnsignedLong(forks);
}

static PyMethodDef functions[] = {
    {"forks", count_forks, METH_NOARGS,
     "How many forks lie between the first process and this one."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef Recorder_methods[] = {
    {"record", (PyCFunction)(void (*)(void))Recorder_record, METH_FASTCALL,
     "Store one transition; returns what is left to do, and whether it EPISODE_ENDED."},
    {"start", (PyCFunction)(void (*)(void))Recorder_start, METH_FASTCALL,
     "Store a record with no transition behind it: a reset, or a filler row."},
    {"reset_took", (PyCFunction)(void (*)(void))Recorder_reset_took, METH_FASTCALL,
     "Count how long a reset took."},
    {"run", (PyCFunction)(void (*)(void))Recorder_run, METH_FASTCALL,
     "Step slots until one needs care, or none is left."},
    {"expect", (PyCFunction)(void (*)(void))Recorder_expect, METH_FASTCALL,
     "Write infos that are like this; returns whether it can."},
    {"mark", (PyCFunction)Recorder_mark, METH_NOARGS,
     "Start the clock of the next slot's step time."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef Recorder_members[] = {
    {"at", T_PYSSIZET, offsetof(Recorder, at), READONLY, "The slot that run is at."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot Recorder_slots[] = {
    {Py_tp_members, Recorder_members},
    {Py_tp_doc, "Writes records; slots are counted from the shard's first."},
    {Py_tp_init, Recorder_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, Recorder_dealloc},
    {Py_tp_methods, Recorder_methods},
    {0, NULL},
};

static PyType_Spec Recorder_spec = {
    .name = "corral.engine.worker._record.Recorder",
    .basicsize = sizeof(Recorder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = Recorder_slots,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_record", "The recorder in C.", -1, functions,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__record(void) {
    import_array();
    step_name = PyUnicode_InternFromString("step");
    if (step_name == NULL)
        return NULL;
    if (pthread_atfork(NULL, NULL, count_fork) != 0)
        return PyErr_NoMemory();
    PyObject *made = PyModule_Create(&module);
    if (made == NULL)
        return NULL;
    PyObject *type = PyType_FromSpec(&Recorder_spec);
    if (type == NULL || PyModule_AddObject(made, "Recorder", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
