"""Runs the labs: notebooks with stubs, checks of students' functions, and a judge that grades students' files.

    cells        a notebook as cells, percent format and .ipynb
    catalogue    finds all labs; own: finds the labs of a teacher's own folder; stubs: makes the students' file from a
                 solution
    lab          defines a lab by its checks; mutation: checks the tests that students write
    cascade      runs checks again with right functions in place of wrong ones; sent: sends such a function to a process
    comparing    compares answers with expected answers
    recognizing  finds the mistake behind a wrong answer; checks/mistakes/ has a class for each mistake
    following/   follows how a function computes, with arrays whose numbers stay with the judge
    calling/     calls the student's functions, here or in a separate process: student, worker, submission, watching;
                 wire and objects: send values between the processes; closed_library: closes packages to students' tests
    remote       starts and asks the processes of a submission
    counting/    counts what each thread of a compiled kernel does (labs 7 and 8)
    sealed/      the walls around a student's process
    beside/      functions that run in the same process as a student's module
    judge/       judging: a report on one submission; hints: common mistakes (mistakes.md); grading: a CSV for a folder.
                 grading uses judges (several at a time), grades_table, roster and whose (who wrote a file), lateness,
                 similarity
    visible      runs checks inside the notebook
    pictures     plots with a text for people who cannot see them
    checks/      a module for each lab; right/: longer functions to provide; mistakes/; variants/: what differs from
                 year to year; planted/: wrong implementations. Single labs also have:
    digits_network  a network that trains with students' kernels, on one computer or over ranks
    compiling    compiles students' Cython (lab 7); cuda: runs their CUDA on the CPU (8); on_gpu: runs it on a GPU;
                 wrong_kernels (8); plugged: uses their moments in layers; museum/: the exhibits of lab 15
    ranks        threads that stand for computers which share a batch (9)
    gap          broken models (5); zoo: old models (10); oracles, suspects: tools to compare (11); capstone (12)
    varied/      variants of a lab: their values (choices), and the text of the lab in a variant (rendering)

How to write a lab
------------------

A lab of your own has another folder and shorter file names (see own). Everything else here holds for your lab, too.

1. examples/labs/solutions/labNN_name.py: the whole notebook, solved, in the percent format. The stub file
   examples/labs/labNN_name.py is made from it by `python examples/labs/make_stubs.py`, so that text and checks are
   written once. A test compares the two files. The student's part is between two comments:

       def moments(x, axes):
           \"\"\"mean and var of x over axes, with the axes kept.\"\"\"
           # SOLUTION 1.1: mean and var
           mean = ...
           return mean, var
           # END

   In the stub file, this part becomes `raise NotImplementedError("Task 1.1: mean and var")`.

2. Tags: `# %% tags=["check"]` for a cell that calls `check("1.1")`, `# %% tags=["plot"]` for one that draws, trains or
   measures. `labs check` leaves out these tagged cells when it loads a submission, and runs all other cells. So a cell
   without a tag should only define functions and take no time. Define a plot's functions in untagged cells, and call
   them in cells tagged "plot".

3. minorm/labs/checks/labNN_name.py: `LAB = Lab(...)` and its checks; the Lab names the packages and programs that
   grading needs. Its `needs` are the labs that come before it, from which the order of `labs list` follows. Students'
   functions take and return values that `wire` carries: numbers, text, arrays, tuples, lists, dicts. A layer runs in
   the judge's process and calls the student's functions: `PartialBackend(forward=student.forward)`. Ranks, as in
   `student.at(rank).share(4)`, and clocks are in the judge's process, too. If a check needs the student's module, for
   example because a model is an argument, write a function such as `def tuned(module, kind)` in
   minorm/labs/beside/labNN_name.py. `student.drive("tuned", kind="camera")` runs this function in the student's
   process. The student's code could change its answer. So such a function must not decide, count or measure anything,
   and the check computes the expected answer in the judge's process. `student.fresh()` starts a process that remembers
   nothing, and `student.native("cython", pieces, "summed", x=x)` runs compiled text without the student's Python.
   In a block `with student.with_changed_kernels(change)`, the student's kernels are compiled from changed text: this
   shows whether an answer follows the kernel.

   `LAB.provide("1.1", moments=right)` provides a right function for a task on which later tasks build. Write
   `Sent(right)` if the function takes a model or another object. The checks of this task must pass with the right
   function (tests/labs/judge/test_cascade.py).

   If the method matters and not only the answer, use `follow = Follower()` and `follow.call(student, "f",
   follow.array(x))`. Then a function of following/verdicts.py checks which functions ran, in which types, over which
   rows. A check whose function cannot be followed has the status "not tried". tests/labs/checks/ways/ways_labNN.py has
   honest solutions and cheats for each task.

   `digits_network.losses(backend, steps)` trains the demo's network. `LAB.mutants(task, right, {bug: wrong, ...})`
   grades the student's test_ functions. An implementation is a dict of functions whose arguments and results `wire` can
   carry.

4. Plots: `plt.rcParams.update(STYLE)` and the colours of minorm.plots, which colour-blind people can tell apart;
   markers and line styles differ as well. A title says what is plotted and does not give the result; axes have names
   and units. The Markdown cell before the plot asks for a guess ("**Guess before you run.**"), and the cell after it
   gives the answer ("**What you see.**"). Look at the plot, and end the cell with `show(figure, "what it shows")`, from
   minorm.labs.pictures. No line of code is wider than 90 columns: ruff formats the code with examples/labs/ruff.toml.

5. examples/labs/solutions/answers.md: an answer to each question to think about; docs/labs-reading.md: what to read.

6. minorm/labs/checks/mistakes/labNN_name.py: a class `Right` with the lab's functions, and a subclass for each typical
   mistake. The subclass's docstring names the mistake. The checks set `LAB.recognizer = mistakes.RECOGNIZER`. A test
   has a solution with each mistake, written in another way.

7. tests/labs/checks/test_labNN.py: typically wrong answers, `lost(NN, (old, new))`, and the checks that must fail on
   them. Solutions and stubs of all labs are tested together in tests/labs/test_all_labs.py. Also add a row to the table
   of docs/labs.md, and rows to mistakes.md, from which the hints come.

8. minorm/labs/checks/variants/labNN_name.py, if the lab varies: `V = Variants(...)` is a table of names and values, and
   has for each value the pieces of the solution's text that mention the value. Pass it as `Lab(..., variants=V)`.
   Checks, planted bugs and mistakes read `V.eps` when they run. A check must fail if a submission uses the plain lab's
   value. If the lab has known mistakes, `translated` converts the plain lab's arguments and answers to the variant's.
   tests/labs/varied/test_all_variants.py tries all labs that vary; the test fails if a piece is no longer in the text.
"""
