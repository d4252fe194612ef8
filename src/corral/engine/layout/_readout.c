/* The C twin of engine/layout/readout.py: see there for the contract.
 *
 * Beside simulators that leave nothing of our code in the caches, what counts is how
 * much code runs, not how fast it is: the Python twins take 240 µs for the infos of 64
 * Ants there, and 65 µs in a loop of their own; these take 120 and 30.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_20_API_VERSION
#include <numpy/arrayobject.h>
#include <string.h>

/* ---- copy_out ---- */

static int is_row(PyObject *array, npy_intp slots) {
    return PyArray_Check(array) && PyArray_NDIM((PyArrayObject *)array) >= 1 &&
           PyArray_DIM((PyArrayObject *)array, 0) == slots &&
           PyArray_IS_C_CONTIGUOUS((PyArrayObject *)array) &&
           !PyDataType_REFCHK(PyArray_DESCR((PyArrayObject *)array));
}

/* Which slots have the entry: a new array of bools, and how many they are. */
static PyObject *mask_of(PyArrayObject *presence, npy_intp column, npy_intp *present) {
    npy_intp slots = PyArray_DIM(presence, 0), stride = PyArray_STRIDE(presence, 0);
    PyObject *mask = PyArray_SimpleNew(1, &slots, NPY_BOOL);
    if (mask == NULL)
        return NULL;
    npy_bool *to = PyArray_DATA((PyArrayObject *)mask);
    const char *from = PyArray_BYTES(presence) + column * PyArray_STRIDE(presence, 1);
    *present = 0;
    for (npy_intp slot = 0; slot < slots; slot++)
        *present += to[slot] = from[slot * stride] != 0;
    return mask;
}

static PyObject *values_of(PyArrayObject *array, PyObject *mask, npy_intp present) {
    PyObject *values = PyArray_NewCopy(array, NPY_CORDER);
    npy_intp slots = PyArray_DIM(array, 0);
    if (values == NULL || present == slots)
        return values;
    size_t size = (size_t)(PyArray_NBYTES((PyArrayObject *)values) / slots);
    const npy_bool *there = PyArray_DATA((PyArrayObject *)mask);
    for (npy_intp slot = 0; slot < slots; slot++)
        if (!there[slot])
            memset(PyArray_BYTES((PyArrayObject *)values) + slot * size, 0, size);
    return values;
}

/* One column's entry in the result, if it has one; -1 on error. */
static int read_column(PyObject *result, PyObject *column, PyObject *array,
                       PyArrayObject *presence, npy_intp index) {
    npy_intp present;
    PyObject *mask = mask_of(presence, index, &present);
    if (mask == NULL)
        return -1;
    if (!present) {
        Py_DECREF(mask);
        return 0;
    }
    PyObject *values = values_of((PyArrayObject *)array, mask, present);
    PyObject *read = values == NULL ? NULL : PyTuple_Pack(3, column, values, mask);
    Py_XDECREF(values);
    Py_DECREF(mask);
    int failed = read == NULL ? -1 : PyList_Append(result, read);
    Py_XDECREF(read);
    return failed;
}

static PyObject *copy_out(PyObject *Py_UNUSED(module), PyObject *const *args,
                          Py_ssize_t given) {
    if (given != 3 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]) ||
        !PyArray_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "copy_out(columns, arrays, presence)");
    PyArrayObject *presence = (PyArrayObject *)args[2];
    Py_ssize_t count = PyList_GET_SIZE(args[0]);
    if (PyArray_NDIM(presence) != 2 || PyArray_ITEMSIZE(presence) != 1 ||
        PyList_GET_SIZE(args[1]) != count || PyArray_DIM(presence, 1) < count)
        return PyErr_Format(PyExc_ValueError, "columns, arrays and presence differ");
    PyObject *result = PyList_New(0);
    for (Py_ssize_t i = 0; result != NULL && i < count; i++) {
        PyObject *array = PyList_GET_ITEM(args[1], i);
        if (!is_row(array, PyArray_DIM(presence, 0)))
            PyErr_Format(PyExc_ValueError, "array %zd is not a row of the block", i);
        if (PyErr_Occurred() ||
            read_column(result, PyList_GET_ITEM(args[0], i), array, presence, i) < 0)
            Py_CLEAR(result);
    }
    return result;
}

/* ---- to_dicts ---- */

/* A new reference to what a list or an array has at a position. */
static PyObject *value_at(PyObject *source, Py_ssize_t position, int plain) {
    if (PyList_CheckExact(source)) {
        PyObject *value = PyList_GET_ITEM(source, position);
        Py_INCREF(value);
        return value;
    }
    PyArrayObject *array = (PyArrayObject *)source;
    char *at = PyArray_BYTES(array) + position * PyArray_STRIDE(array, 0);
    if (plain || PyArray_TYPE(array) == NPY_OBJECT)
        return PyArray_GETITEM(array, at);
    return PyArray_Scalar(at, PyArray_DESCR(array), source);
}

static int is_source(PyObject *source, Py_ssize_t count) {
    if (PyList_CheckExact(source))
        return PyList_GET_SIZE(source) == count;
    return PyArray_CheckExact(source) && PyArray_NDIM((PyArrayObject *)source) == 1 &&
           PyArray_DIM((PyArrayObject *)source, 0) == count;
}

/* Copies of a dict that has the keys already need not grow on the way. */
static PyObject *dict_at(PyObject *blank, PyObject *keys, PyObject *sources,
                         const char *plain, Py_ssize_t position) {
    PyObject *info = PyDict_Copy(blank);
    for (Py_ssize_t i = 0; info != NULL && i < PyTuple_GET_SIZE(keys); i++) {
        PyObject *source = PyTuple_GET_ITEM(sources, i);
        PyObject *value = value_at(source, position, plain[i]);
        if (value == NULL ||
            PyDict_SetItem(info, PyTuple_GET_ITEM(keys, i), value) < 0)
            Py_CLEAR(info);
        Py_XDECREF(value);
    }
    return info;
}

static PyObject *to_dicts(PyObject *Py_UNUSED(module), PyObject *const *args,
                          Py_ssize_t given) {
    if (given != 4 || !PyTuple_CheckExact(args[0]) || !PyTuple_CheckExact(args[1]) ||
        !PyBytes_CheckExact(args[2]))
        return PyErr_Format(PyExc_TypeError, "to_dicts(keys, sources, plain, count)");
    PyObject *keys = args[0], *sources = args[1];
    Py_ssize_t count = PyLong_AsSsize_t(args[3]), width = PyTuple_GET_SIZE(keys);
    if (count < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "count is negative");
        return NULL;
    }
    int fits = PyTuple_GET_SIZE(sources) == width && PyBytes_GET_SIZE(args[2]) == width;
    for (Py_ssize_t i = 0; fits && i < width; i++)
        fits = is_source(PyTuple_GET_ITEM(sources, i), count);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "keys, sources, plain and count differ");
    PyObject *infos = PyList_New(count), *blank = PyDict_New();
    int failed = infos == NULL || blank == NULL;
    for (Py_ssize_t i = 0; !failed && i < width; i++)
        failed = PyDict_SetItem(blank, PyTuple_GET_ITEM(keys, i), Py_None) < 0;
    for (Py_ssize_t position = 0; !failed && position < count; position++) {
        const char *plain = PyBytes_AS_STRING(args[2]);
        PyObject *info = dict_at(blank, keys, sources, plain, position);
        failed = info == NULL;
        PyList_SET_ITEM(infos, position, info);
    }
    Py_XDECREF(blank);
    if (failed)
        Py_CLEAR(infos);
    return infos;
}

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"copy_out", (PyCFunction)(void (*)(void))copy_out, METH_FASTCALL,
     "Copy the columns of one row that any slot has."},
    {"to_dicts", (PyCFunction)(void (*)(void))to_dicts, METH_FASTCALL,
     "One dict per position, out of one list or array per key."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_readout", "The readout in C.", -1, functions,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__readout(void) {
    import_array();
    return PyModule_Create(&module);
}
