"""Puts walls around a process: they decide what a student's code can read, write, start and signal.

    syscalls     numbers of system calls on x86-64 and aarch64
    seccomp      which system calls the process may make
    landlock     which files the process may open
    namespaces   a separate file system, without a network
    counting     how much the process may write, if no separate file system limits the size
    limits       limits memory, file sizes and threads, changes the user, and ends the process with its parent
    entry        the process begins here: it seals itself, then imports NumPy and the rest
    attack       the judge's own attempts to get through the walls; programs: attempts with compilers; victims: files
                 that must not change
    walls        which walls a process has, and which files are inside
    copies       where else the hidden files can be read
    finding      tries which walls this machine has
    folders      removes the process's folder, whatever is in it
    process      starts such a process for the judge, talks to the process and ends it

The code that runs before the walls are up uses only the standard library. The process seals itself before it imports
NumPy. The reason is that Landlock applies only to the thread that asks for it and to threads that this thread starts
later, and OpenBLAS starts its threads when it is imported.
"""
