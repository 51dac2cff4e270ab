"""Runs the labs: notebooks with stubs, checks of students' functions, and a judge that trusts only right answers.

    cells        a notebook as cells, percent format and .ipynb
    catalogue    all labs; own: the labs of a teacher's own folder; stubs: makes the students' file from a solution
    lab          a lab as its checks; mutation: checks of the student's own tests
    cascade      runs checks again with right functions in place of wrong ones; sent: right functions on models
    comparing    expected and got
    recognizing  finds the mistake behind a wrong answer, from the classes in checks/mistakes/
    following/   follows how a function computes: its arrays stay with the judge
    calling/     the student's functions, here or in a separate process: student, worker, submission, watching; wire and
                 objects: values between the processes; closed_library: packages closed to students' tests
    remote       the judge's side of that process
    counting/    headers that count what each thread of a compiled kernel does (7, 8)
    sealed/      the walls around such a process
    beside/      functions that must run next to a student's module
    judge/       judging: one submission -> a report; hints: common mistakes (mistakes.md); grading: a folder -> CSV,
                 with judges (several at a time), grades_table, roster and whose (which student), lateness, similarity
    visible      the same checks inside the notebook
    pictures     plots with a text for people who cannot see them
    checks/      a module for each lab; right/: longer functions to provide; mistakes/; variants/: the tables of a year;
                 planted/: wrong implementations. Single labs also need:
    digits_network  the network that students' kernels train, on one computer or over ranks
    compiling    students' Cython (7); cuda: their CUDA on the CPU (8); on_gpu: the same on a GPU; wrong_kernels (8);
                 plugged: their moments in layers; museum/: the exhibits of lab 15
    ranks        computers that share a batch, as threads (9)
    gap          broken models (5); zoo: old ones (10); oracles, suspects: tools to compare (11); capstone (12)
    varied/      differences from year to year: choices, and the text of a lab in a variant (rendering)

How to write a lab
------------------

Your own lab lies in another folder, with shorter file names (see own); everything else holds for it too.

1. examples/labs/solutions/labNN_name.py: the whole notebook, solved, in the percent format. The stub file
   examples/labs/labNN_name.py is made from it by `python examples/labs/make_stubs.py`, so that text and checks are
   written once; a test compares the two. The student's part stands between two comments:

       def moments(x, axes):
           \"\"\"mean and var of x over axes, with the axes kept.\"\"\"
           # SOLUTION 1.1: mean and var
           mean = ...
           return mean, var
           # END

   which becomes `raise NotImplementedError("Task 1.1: mean and var")`.

2. Tags: `# %% tags=["check"]` for a cell that calls `check("1.1")`, `# %% tags=["plot"]` for one that draws, trains or
   measures. `labs check` leaves both out when it loads a submission; it runs everything else, so cells without a tag
   define things and cost nothing. Plot cells define functions in untagged cells and call them in tagged ones.

3. minorm/labs/checks/labNN_name.py: `LAB = Lab(...)` and its checks; it names the packages and programs that grading
   needs, and in `needs` the labs that come before it: the order of `labs list` follows from them. Students' functions
   take and return values that `wire` carries: numbers, text, arrays, tuples, lists, dicts. A layer runs here, with the
   student's functions in it: `PartialBackend(forward=student.forward)`. So do ranks, `student.at(rank).share(4)`, and
   clocks. If a check needs the student's module (a model as argument), write a function in
   minorm/labs/beside/labNN_name.py, `def tuned(module, kind)`, which runs in the student's process:
   `student.drive("tuned", kind="camera")`. The student could change its answer: let it decide, count and measure
   nothing, and compute the expected answer here. `student.fresh()` starts a process that remembers nothing, and
   `student.native("cython", pieces, "summed", x=x)` runs compiled text without the student's Python.

   `LAB.provide("1.1", moments=right)` gives a right function for a task that later tasks build on; wrap it as
   `Sent(right)` if it takes a model or another object. Its own checks must pass with it
   (tests/labs/judge/test_cascade.py).

   If the method counts and not only the answer, use `follow = Follower()`, `follow.call(student, "f", follow.array(x))`
   and then a function of following/verdicts.py: which functions ran, in which types, over which rows. A function that
   cannot be followed is "not tried". tests/labs/checks/ways/ways_labNN.py has honest ways and cheats for each task.

   `digits_network.losses(backend, steps)` trains the demo's network. `LAB.mutants(task, right, {bug: wrong, ...})`
   grades the student's test_ functions; an implementation is a dict of functions, which get and return what `wire`
   carries.

4. Plots: `plt.rcParams.update(STYLE)` and the colours of minorm.plots, which colour-blind people can tell apart;
   markers and line styles differ as well. A title says what is plotted and does not give the result; axes have names
   and units. The Markdown cell before the plot asks for a guess ("**Guess before you run.**"), and the cell after it
   gives the answer ("**What you see.**"). Look at the plot, and end with `show(figure, "what it shows")` of pictures.
   No line of code is wider than 90 columns: examples/labs/ruff.toml lays it out.

5. examples/labs/solutions/answers.md: an answer to each question to think about; docs/labs-reading.md: what to read.

6. minorm/labs/checks/mistakes/labNN_name.py: a class `Right` with the lab's functions, and a subclass for each typical
   mistake, whose docstring names it; `LAB.recognizer = mistakes.RECOGNIZER` in the checks. A test has a solution that
   makes each of them, written in another way.

7. tests/labs/checks/test_labNN.py: typically wrong answers, `lost(NN, (old, new))`, and the checks they must lose.
   Solutions and stubs of all labs are tested together in tests/labs/test_all_labs.py. A row in the table of
   docs/labs.md, and rows in mistakes.md, where hints come from.

8. minorm/labs/checks/variants/labNN_name.py, if the lab varies: `V = Variants(...)`, a table of names and values, each
   with the pieces of the solution's text that say it. `Lab(..., variants=V)`; checks, planted bugs and mistakes read
   `V.eps` when they run. A check must fail where the plain lab's value is written. Where mistakes are known,
   `translated` turns the plain lab's arguments and answers into the variant's. tests/labs/varied/test_all_variants.py
   tries all labs that vary; it fails where a piece is not in the text any more.
"""
