"""Puts walls around a process: they decide what a student's code can read, write, start and signal.

    syscalls     numbers of system calls on x86-64 and aarch64
    seccomp      which system calls a process may make at all
    landlock     which files it may open
    namespaces   a separate file system, without a network
    counting     how much it may write, if no separate file system limits the size
    limits       memory, file sizes, threads; its user; its end
    entry        where the process begins: it seals itself, then imports NumPy and the rest
    attack       the judge's own attempt to get out; programs: through compilers; victims: files that must not change
    walls        which walls a process has, and which files are inside
    copies       where else the hidden files can be read
    finding      which walls this machine has, found by trying
    folders      removes the process's folder, whatever is in it
    process      the judge's side: start such a process, talk to it, end it

Everything that runs before the walls stand needs only the standard library. The process seals itself, and does so
before it imports NumPy: Landlock holds for the thread that asks for it and for those that it starts later, and
OpenBLAS starts its threads when it is imported.
"""
