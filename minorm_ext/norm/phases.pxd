# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# The phases of a normalization, and which job of which loops does a part of one.

from minorm_ext.norm.far_jobs cimport far_backward, far_backward_pays, far_forward, far_forward_pays
from minorm_ext.norm.lane_jobs cimport (
    lanes_apply, lanes_combine, lanes_finish, lanes_input, lanes_moments, lanes_sums, lanes_whole_backward,
    lanes_whole_forward,
)
from minorm_ext.norm.line_jobs cimport line_backward, line_backward_pays, line_forward, line_forward_pays
from minorm_ext.norm.params cimport add_up_share
from minorm_ext.norm.row_jobs cimport (
    rows_apply, rows_clear, rows_collect, rows_combine, rows_finish, rows_input, rows_moments, rows_sums,
    rows_whole_backward, rows_whole_forward,
)
from minorm_ext.norm.run_jobs cimport runs_apply, runs_input, runs_moments, runs_sums
from minorm_ext.norm.short_jobs cimport short_backward, short_forward
from minorm_ext.norm.plan cimport Work
from minorm_ext.simd.storage cimport finish, real

cdef enum Phase:
    FORWARD   # a block of rows, or a tile of lanes: moments and apply
    MOMENTS   # a part
    FINISH    # a row or tile: merge its parts
    APPLY     # a part
    BACKWARD  # a block or tile: sums and input
    SUMS      # a part
    COMBINE   # a row or tile: add up its parts
    INPUT     # a part
    CLEAR     # a piece of what blocks collect
    COLLECT   # a group of rows: add up the ds and db of its blocks
    ADD_UP    # a share: ds and db of rows or lanes


cdef inline void do_rows(const real* type, const Work* w, Phase phase, Py_ssize_t job) noexcept nogil:
    if phase == FORWARD:
        if far_forward_pays(w):
            far_forward(type, w, job)
        elif w.short:
            short_forward(type, w, job)
        elif line_forward_pays(w):
            line_forward(type, w, job)
        else:
            rows_whole_forward(type, w, job)
    elif phase == MOMENTS:
        rows_moments(type, w, job)
    elif phase == FINISH:
        rows_finish(type, w, job)
    elif phase == APPLY:
        rows_apply(type, w, job)
    elif phase == BACKWARD:
        if far_backward_pays(w):
            far_backward(type, w, job)
        elif w.short:
            short_backward(type, w, job)
        elif line_backward_pays(w):
            line_backward(type, w, job)
        else:
            rows_whole_backward(type, w, job)
    elif phase == SUMS:
        rows_sums(type, w, job)
    elif phase == COMBINE:
        rows_combine(type, w, job)
    elif phase == INPUT:
        rows_input(type, w, job)
    elif phase == CLEAR:
        rows_clear(type, w, job)
    else:
        rows_collect(type, w, job)


cdef inline void do_lanes(const real* type, const Work* w, Phase phase, Py_ssize_t job) noexcept nogil:
    if phase == FORWARD:
        lanes_whole_forward(type, w, job)
    elif phase == MOMENTS:
        lanes_moments(type, w, job)
    elif phase == FINISH:
        lanes_finish(type, w, job)
    elif phase == APPLY:
        lanes_apply(type, w, job)
    elif phase == BACKWARD:
        lanes_whole_backward(type, w, job)
    elif phase == SUMS:
        lanes_sums(type, w, job)
    elif phase == COMBINE:
        lanes_combine(type, w, job)
    else:
        lanes_input(type, w, job)


cdef inline void do_runs(const real* type, const Work* w, Phase phase, Py_ssize_t job) noexcept nogil:
    if phase == MOMENTS:
        runs_moments(type, w, job)
    elif phase == FINISH:
        rows_finish(type, w, job)
    elif phase == APPLY:
        runs_apply(type, w, job)
    elif phase == SUMS:
        runs_sums(type, w, job)
    elif phase == COMBINE:
        rows_combine(type, w, job)
    else:
        runs_input(type, w, job)


cdef inline void do_of(const real* type, const Work* w, Phase phase, Py_ssize_t job) noexcept nogil:
    if w.lanes:
        do_lanes(type, w, phase, job)
    elif w.by_runs:
        do_runs(type, w, phase, job)
    else:
        do_rows(type, w, phase, job)


cdef inline void do(const Work* w, Phase phase, Py_ssize_t job) noexcept nogil:
    if phase == ADD_UP:
        add_up_share(w, job)
    elif w.single:
        do_of(<const float*>NULL, w, phase, job)
    else:
        do_of(<const double*>NULL, w, phase, job)
    finish(&w.y)
    finish(&w.dx)
