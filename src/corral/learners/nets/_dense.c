/* The C twin of parts of numpy_forward.py and heads.py: dense layers, and a choice.
 *
 * A few rows take numpy less time to compute than to be called. So this calls what numpy
 * itself would call in the end, the inner loops of its functions, and gets the same bits:
 * products, exp, log and the activation are numpy's; here are only additions,
 * subtractions and comparisons of single numbers, in numpy's order.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_20_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* From so many numbers on, numpy adds them up in another order. */
#define MAX_OPTIONS 7
#define MAX_LAYERS 16
#define FORBIDDEN -1e9

/* An inner loop of a numpy function. */
typedef struct {
    PyObject *kept; /* the function, or NULL */
    PyUFuncGenericFunction call;
    void *data;
} Loop;

static Loop product, exponential, logarithm;

/* The loop of a function for float32 alone; 0, or -1 if it has none. */
static int find_loop(Loop *loop, PyObject *function) {
    if (!PyObject_TypeCheck(function, &PyUFunc_Type)) {
        PyErr_SetString(PyExc_TypeError, "not one of numpy's functions");
        return -1;
    }
    PyUFuncObject *ufunc = (PyUFuncObject *)function;
    for (int i = 0; i < ufunc->ntypes; i++) {
        const char *types = ufunc->types + i * ufunc->nargs;
        int fits = 1;
        for (int at = 0; at < ufunc->nargs; at++)
            fits = fits && types[at] == NPY_FLOAT;
        if (fits && ufunc->functions[i] != NULL) {
            Py_INCREF(function);
            *loop = (Loop){function, ufunc->functions[i], ufunc->data[i]};
            return 0;
        }
    }
    PyErr_SetString(PyExc_TypeError, "this function has no loop for float32");
    return -1;
}

/* to[i] = loop(from[i]), numbers side by side. */
static void apply(const Loop *loop, float *from, float *to, npy_intp count) {
    char *arguments[] = {(char *)from, (char *)to};
    npy_intp steps[] = {sizeof(float), sizeof(float)};
    loop->call(arguments, &count, steps, loop->data);
}

typedef struct {
    PyArrayObject *weight, *bias; /* (inputs, outputs), (outputs,) */
} Layer;

typedef struct {
    PyObject_HEAD
    Loop activation;
    int is_relu;
    npy_intp rows, together;
    Py_ssize_t count;
    Layer layers[MAX_LAYERS];
    float *hidden[2];
} Dense;

static int is_plain(PyObject *value, int dimensions) {
    if (!PyArray_CheckExact(value))
        return 0;
    PyArrayObject *array = (PyArrayObject *)value;
    return PyArray_NDIM(array) == dimensions && PyArray_TYPE(array) == NPY_FLOAT &&
           PyArray_ISALIGNED(array) && PyArray_ISNOTSWAPPED(array);
}

static int take_layer(Dense *self, PyObject *pair, npy_intp inputs) {
    Layer *layer = &self->layers[self->count];
    if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2 ||
        !is_plain(PyTuple_GET_ITEM(pair, 0), 2) ||
        !is_plain(PyTuple_GET_ITEM(pair, 1), 1)) {
        PyErr_SetString(PyExc_TypeError, "layers are (weight, bias) of float32");
        return -1;
    }
    PyArrayObject *weight = (PyArrayObject *)PyTuple_GET_ITEM(pair, 0);
    PyArrayObject *bias = (PyArrayObject *)PyTuple_GET_ITEM(pair, 1);
    if ((inputs && PyArray_DIM(weight, 0) != inputs) ||
        PyArray_DIM(weight, 1) != PyArray_DIM(bias, 0) ||
        !PyArray_IS_C_CONTIGUOUS(bias)) {
        PyErr_SetString(PyExc_ValueError, "the layers do not fit each other");
        return -1;
    }
    Py_INCREF(weight);
    Py_INCREF(bias);
    *layer = (Layer){weight, bias};
    self->count++;
    return 0;
}

/* Dense(layers, activation, rows, together): activation is numpy's tanh or maximum; so
 * many rows are multiplied together. */
static int Dense_init(Dense *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"layers", "activation", "rows", "together", NULL};
    PyObject *layers, *activation;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!Onn", names, &PyList_Type,
                                     &layers, &activation, &self->rows,
                                     &self->together))
        return -1;
    if (self->count) {
        PyErr_SetString(PyExc_RuntimeError, "these layers are made once");
        return -1;
    }
    Py_ssize_t count = PyList_GET_SIZE(layers);
    if (count < 1 || count > MAX_LAYERS || self->rows < 1 ||
        self->together < 1 || self->rows % self->together) {
        PyErr_SetString(PyExc_ValueError, "no layers, or too many, or no rows");
        return -1;
    }
    if (find_loop(&self->activation, activation) < 0)
        return -1;
    self->is_relu = ((PyUFuncObject *)activation)->nin == 2;
    npy_intp widest = 1, inputs = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (take_layer(self, PyList_GET_ITEM(layers, i), inputs) < 0)
            return -1;
        inputs = PyArray_DIM(self->layers[i].bias, 0);
        widest = inputs > widest ? inputs : widest;
    }
    for (int i = 0; i < 2; i++) {
        self->hidden[i] = PyMem_Calloc((size_t)(widest * self->rows), sizeof(float));
        if (self->hidden[i] == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    return 0;
}

static void Dense_dealloc(Dense *self) {
    PyTypeObject *type = Py_TYPE(self);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_DECREF(self->layers[i].weight);
        Py_DECREF(self->layers[i].bias);
    }
    Py_XDECREF(self->activation.kept);
    PyMem_Free(self->hidden[0]);
    PyMem_Free(self->hidden[1]);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* to = from @ weight, some rows together. */
static void multiply(const Dense *self, const Layer *layer, float *from, float *to) {
    npy_intp inputs = PyArray_DIM(layer->weight, 0), size = sizeof(float);
    npy_intp outputs = PyArray_DIM(layer->weight, 1);
    npy_intp together = self->together;
    npy_intp dimensions[] = {self->rows / together, together, inputs, outputs};
    npy_intp steps[] = {
        together * inputs * size, 0, together * outputs * size,
        inputs * size, size,
        PyArray_STRIDE(layer->weight, 0), PyArray_STRIDE(layer->weight, 1),
        outputs * size, size,
    };
    char *arguments[] = {(char *)from, PyArray_BYTES(layer->weight), (char *)to};
    product.call(arguments, dimensions, steps, product.data);
}

static void add_bias(const Dense *self, const Layer *layer, float *to) {
    const float *bias = (const float *)PyArray_DATA(layer->bias);
    npy_intp outputs = PyArray_DIM(layer->bias, 0);
    for (npy_intp row = 0; row < self->rows; row++, to += outputs)
        for (npy_intp i = 0; i < outputs; i++)
            to[i] += bias[i];
}

static void activate(const Dense *self, float *numbers, npy_intp count) {
    if (!self->is_relu) {
        apply(&self->activation, numbers, numbers, count);
        return;
    }
    float zero = 0.0f;
    char *arguments[] = {(char *)numbers, (char *)&zero, (char *)numbers};
    npy_intp steps[] = {sizeof(float), 0, sizeof(float)};
    self->activation.call(arguments, &count, steps, self->activation.data);
}

/* outputs(inputs): (rows, inputs) -> (rows, outputs of the last layer). */
static PyObject *Dense_outputs(Dense *self, PyObject *inputs) {
    PyArrayObject *array = (PyArrayObject *)inputs;
    if (!self->count || self->hidden[1] == NULL || !is_plain(inputs, 2) ||
        !PyArray_IS_C_CONTIGUOUS(array) || PyArray_DIM(array, 0) != self->rows ||
        PyArray_DIM(array, 1) != PyArray_DIM(self->layers[0].weight, 0))
        return PyErr_Format(PyExc_ValueError, "inputs must be (rows, inputs) of float32");
    npy_intp shape[] = {self->rows,
                        PyArray_DIM(self->layers[self->count - 1].bias, 0)};
    PyObject *made = PyArray_SimpleNew(2, shape, NPY_FLOAT);
    if (made == NULL)
        return NULL;
    float *from = (float *)PyArray_DATA(array);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const Layer *layer = &self->layers[i];
        int is_last = i == self->count - 1;
        float *to = is_last ? (float *)PyArray_DATA((PyArrayObject *)made)
                            : self->hidden[i % 2];
        multiply(self, layer, from, to);
        add_bias(self, layer, to);
        if (!is_last)
            activate(self, to, self->rows * PyArray_DIM(layer->bias, 0));
        from = to;
    }
    return made;
}

/* nan if one of the numbers is. */
static float largest(const float *numbers, npy_intp count) {
    float found = numbers[0];
    for (npy_intp i = 1; i < count; i++)
        found = numbers[i] > found || numbers[i] != numbers[i] ? numbers[i] : found;
    return found;
}

/* The option in whose share of [0, 1) the number is; see `_pick` in heads.py. */
static npy_intp picked(const float *chances, npy_intp count, double drawn) {
    npy_intp found = 0;
    float before = 0.0f;
    for (npy_intp i = 0; i < count - 1; i++) {
        before = i ? before + chances[i] : chances[i];
        found += drawn >= (double)before;
    }
    return found;
}

/* choose(outputs, drawn): (rows, options), (rows, 1) -> (rows, 1), (rows,); None where
 * the careful way has to look at it. */
static PyObject *choose(PyObject *Py_UNUSED(module), PyObject *const *args,
                        Py_ssize_t count) {
    if (count != 2 || !is_plain(args[0], 2) || !PyArray_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "choose(outputs, drawn)");
    PyArrayObject *outputs = (PyArrayObject *)args[0];
    PyArrayObject *numbers = (PyArrayObject *)args[1];
    npy_intp rows = PyArray_DIM(outputs, 0), options = PyArray_DIM(outputs, 1);
    if (options > MAX_OPTIONS || options < 2 || rows > NPY_MAX_INT32 / MAX_OPTIONS ||
        !PyArray_IS_C_CONTIGUOUS(outputs))
        Py_RETURN_NONE;
    if (PyArray_NDIM(numbers) != 2 || PyArray_TYPE(numbers) != NPY_DOUBLE ||
        !PyArray_IS_C_CONTIGUOUS(numbers) || PyArray_SIZE(numbers) != rows)
        return PyErr_Format(PyExc_ValueError, "drawn must be (rows, 1) of float64");
    npy_intp shape[] = {rows, 1}, all = rows * options;
    PyObject *chosen = PyArray_SimpleNew(2, shape, NPY_INTP);
    PyObject *found = PyArray_SimpleNew(1, shape, NPY_FLOAT);
    float *work = PyMem_Malloc((size_t)(2 * all + rows) * sizeof(float));
    if (chosen == NULL || found == NULL || work == NULL) {
        Py_XDECREF(chosen);
        Py_XDECREF(found);
        PyMem_Free(work);
        return PyErr_NoMemory();
    }
    float *logs = work, *chances = work + all, *sums = work + 2 * all;
    const float *given = (const float *)PyArray_DATA(outputs);
    for (npy_intp row = 0; row < rows; row++) {
        float most = largest(given + row * options, options);
        for (npy_intp i = row * options; i < (row + 1) * options; i++)
            logs[i] = given[i] - most;
    }
    apply(&exponential, logs, chances, all);
    for (npy_intp row = 0; row < rows; row++) {
        sums[row] = chances[row * options];
        for (npy_intp i = 1; i < options; i++)
            sums[row] += chances[row * options + i];
    }
    apply(&logarithm, sums, sums, rows);
    for (npy_intp i = 0; i < all; i++)
        logs[i] -= sums[i / options];
    apply(&exponential, logs, chances, all);
    const double *drawn = (const double *)PyArray_DATA(numbers);
    npy_intp *places = (npy_intp *)PyArray_DATA((PyArrayObject *)chosen);
    float *log_probs = (float *)PyArray_DATA((PyArrayObject *)found);
    int careful = 0;
    for (npy_intp row = 0; row < rows; row++) {
        places[row] = picked(chances + row * options, options, drawn[row]);
        log_probs[row] = logs[row * options + places[row]];
        /* Forbidden, or not a number: numpy may have to warn. */
        careful |= !(log_probs[row] > FORBIDDEN / 2) || !isfinite(log_probs[row]);
    }
    PyMem_Free(work);
    if (careful) {
        Py_DECREF(chosen);
        Py_DECREF(found);
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(NN)", chosen, found);
}

static PyMethodDef Dense_methods[] = {
    {"outputs", (PyCFunction)Dense_outputs, METH_O, "Outputs of the last layer."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Dense_slots[] = {
    {Py_tp_doc, "Dense layers with an activation between them."},
    {Py_tp_init, Dense_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, Dense_dealloc},
    {Py_tp_methods, Dense_methods},
    {0, NULL},
};

static PyType_Spec Dense_spec = {
    .name = "corral.learners.nets._dense.Dense",
    .basicsize = sizeof(Dense),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = Dense_slots,
};

static PyMethodDef functions[] = {
    {"choose", (PyCFunction)(void (*)(void))choose, METH_FASTCALL,
     "Choose an option for each row, and say how likely it was."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_dense", "Dense layers and a choice in C.", -1, functions,
    NULL, NULL, NULL, NULL,
};

/* Finds numpy's loops; -1 on error. */
static int find_loops(void) {
    PyObject *numpy = PyImport_ImportModule("numpy");
    if (numpy == NULL)
        return -1;
    const struct {
        const char *name;
        Loop *loop;
    } wanted[] = {{"matmul", &product}, {"exp", &exponential}, {"log", &logarithm}};
    int result = 0;
    for (size_t i = 0; i < 3 && result == 0; i++) {
        PyObject *function = PyObject_GetAttrString(numpy, wanted[i].name);
        result = function == NULL ? -1 : find_loop(wanted[i].loop, function);
        Py_XDECREF(function);
    }
    Py_DECREF(numpy);
    return result;
}

PyMODINIT_FUNC PyInit__dense(void) {
    import_array();
    import_umath();
    if (find_loops() < 0) { /* another numpy: then its functions are called */
        PyErr_SetString(PyExc_ImportError, "numpy's inner loops were not found");
        return NULL;
    }
    PyObject *made = PyModule_Create(&module);
    if (made == NULL)
        return NULL;
    PyObject *type = PyType_FromSpec(&Dense_spec);
    if (type == NULL || PyModule_AddObject(made, "Dense", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
