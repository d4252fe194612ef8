/* The C twin of workers/record.py: see there for the contract.
 *
 * One call stores a slot's scalars, which all lie on one cache line, and copies the
 * observation when it is a plain, aligned, C-ordered array of the leaf's type and shape.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_20_API_VERSION
#include <numpy/arrayobject.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define ENDED 1
#define OBS 2
#define REWARD 4
#define MAX_DIMENSIONS 8

/* Offsets as in layout/plan.py RECORD. */
typedef struct {
    double reward;
    double episode_return;
    int64_t seed;
    double step_time;
    int32_t episode_length;
    uint8_t terminated, truncated, started, valid;
} Record;

typedef struct {
    PyObject_HEAD
    PyArrayObject *records; /* keep the memory alive */
    PyArrayObject *obs;
    char *records_at, *obs_at;
    npy_intp slots, record_row, record_slot, obs_row, obs_slot;
    int dimensions;
    npy_intp shape[MAX_DIMENSIONS];
    double mark;
} Recorder;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static int Recorder_init(Recorder *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"records", "obs", NULL};
    PyObject *records, *obs;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O", names, &PyArray_Type,
                                     &records, &obs))
        return -1;
    PyArrayObject *array = (PyArrayObject *)records;
    if (PyArray_NDIM(array) != 2 || PyArray_DIM(array, 0) != 2 ||
        PyArray_ITEMSIZE(array) < (npy_intp)sizeof(Record)) {
        PyErr_SetString(PyExc_ValueError, "records must be (2, slots) of RECORD");
        return -1;
    }
    self->records_at = PyArray_BYTES(array);
    self->record_row = PyArray_STRIDE(array, 0);
    self->record_slot = PyArray_STRIDE(array, 1);
    self->slots = PyArray_DIM(array, 1);
    self->mark = now();
    Py_INCREF(records);
    Py_XSETREF(self->records, array);
    Py_CLEAR(self->obs);
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

static void Recorder_dealloc(Recorder *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->records);
    Py_XDECREF(self->obs);
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

static PyObject *Recorder_record(Recorder *self, PyObject *const *args,
                                 Py_ssize_t count) {
    if (count != 6)
        return PyErr_Format(PyExc_TypeError, "record takes 6 arguments, not %zd", count);
    Py_ssize_t row = PyLong_AsSsize_t(args[0]);
    Py_ssize_t slot = PyLong_AsSsize_t(args[1]);
    if (PyErr_Occurred())
        return NULL;
    if ((row != 0 && row != 1) || slot < 0 || slot >= self->slots)
        return PyErr_Format(PyExc_IndexError, "no row %zd, slot %zd", row, slot);
    int terminated = PyObject_IsTrue(args[4]);
    int truncated = PyObject_IsTrue(args[5]);
    if (terminated < 0 || truncated < 0)
        return NULL;
    double reward = 0.0;
    int plain = plain_number(args[3], &reward);
    if (plain < 0)
        return NULL;
    long left = copy_obs(self, row, slot, args[2]) ? 0 : OBS;
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
        left |= REWARD;
    }
    record->terminated = (uint8_t)terminated;
    record->truncated = (uint8_t)truncated;
    record->started = 0;
    record->valid = 1;
    double at_end = now();
    record->step_time = at_end - self->mark;
    self->mark = at_end;
    return PyLong_FromLong(terminated || truncated ? left | ENDED : left);
}

static PyObject *Recorder_mark(Recorder *self, PyObject *Py_UNUSED(ignored)) {
    self->mark = now();
    Py_RETURN_NONE;
}

static PyMethodDef Recorder_methods[] = {
    {"record", (PyCFunction)(void (*)(void))Recorder_record, METH_FASTCALL,
     "Store one transition; returns what is left to do, and whether it ENDED."},
    {"mark", (PyCFunction)Recorder_mark, METH_NOARGS,
     "Start the clock of the next slot's step time."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Recorder_slots[] = {
    {Py_tp_doc, "Writes records; slots are counted from the shard's first."},
    {Py_tp_init, Recorder_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, Recorder_dealloc},
    {Py_tp_methods, Recorder_methods},
    {0, NULL},
};

static PyType_Spec Recorder_spec = {
    .name = "corral.workers._record.Recorder",
    .basicsize = sizeof(Recorder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = Recorder_slots,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_record", "The recorder in C.", -1, NULL,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__record(void) {
    import_array();
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
