"""Walls around a process: what a student's code can read, write, start and signal, decided before it runs.

    syscalls     numbers of system calls on x86-64 and aarch64
    seccomp      which system calls a process may make at all
    landlock     which files it may open
    namespaces   a file system of its own, without a network
    counting     how much it may write, where no file system of its own has a size
    limits       memory, file sizes, threads; its user; its end
    entry        where the process begins: it seals itself, then imports NumPy and the rest
    attack       the judge's own try to get out; programs: by way of compilers; victims: files that it may not change
    walls        what stands around a process, and which files are within
    copies       where else the hidden files can be read
    finding      which walls this machine has, found by trying
    folders      how the process's folder is removed, whatever is in it
    process      the judge's side: start such a process, talk to it, end it

Everything that runs before the walls stand needs the standard library alone. The process seals itself, and does so
before it imports NumPy: Landlock holds for the thread that asks for it and for those that it starts later, and
OpenBLAS starts its threads when it is imported.
"""
