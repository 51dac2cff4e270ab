"""Lists the system calls that a sealed process may make: name, x86-64, aarch64 (-1: no call of that name).

All other calls are refused. The list leaves out calls that start or signal a process (fork, vfork, execve, kill,
ptrace, pidfd_*) or talk to others (socket, shmget, semget, msgget, mq_open, keyctl, memfd_create). It also leaves out
calls whose effects outlive the process (chmod, chown, utime, setxattr, flock), or that measure what other processes
left in the page cache (fadvise, preadv2, mincore, cachestat). It leaves out truncate, which Landlock limits only from
version 3 on; a process can still shorten a file through a descriptor that is open to write. A process that runs a
compiler gets a few more calls, which start programs and wait for them.
"""

from __future__ import annotations

import platform

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # as the kernel tells them to a filter
_CALLS = """
read 0 63, write 1 64, open 2 -1, close 3 57, stat 4 -1, fstat 5 80, lstat 6 -1, poll 7 -1, lseek 8 62, mmap 9 222,
mprotect 10 226, munmap 11 215, brk 12 214, rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139,
ioctl 16 29, pread64 17 67, pwrite64 18 68, readv 19 65, writev 20 66, access 21 -1, pipe 22 -1, select 23 -1,
sched_yield 24 124, mremap 25 216, madvise 28 233, dup 32 23, dup2 33 -1, nanosleep 35 101, getpid 39 172, clone 56 220,
exit 60 93, uname 63 160, fcntl 72 25, fsync 74 82, fdatasync 75 83, ftruncate 77 46, getdents 78 -1, getcwd 79 17,
rename 82 -1, mkdir 83 -1, rmdir 84 -1, unlink 87 -1, readlink 89 -1, umask 95 166, gettimeofday 96 169,
getrlimit 97 163, getrusage 98 165, sysinfo 99 179, times 100 153, getuid 102 174, getgid 104 176, geteuid 107 175,
getegid 108 177, getppid 110 173, getgroups 115 158, sigaltstack 131 132, statfs 137 43, fstatfs 138 44, prctl 157 167,
gettid 186 178, time 201 -1, futex 202 98, sched_setaffinity 203 122, sched_getaffinity 204 123, getdents64 217 61,
restart_syscall 219 128, clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115, exit_group 231 94,
tgkill 234 131, openat 257 56, mkdirat 258 34, newfstatat 262 79, unlinkat 263 35, renameat 264 38, readlinkat 267 78,
faccessat 269 48, pselect6 270 72, ppoll 271 73, set_robust_list 273 99, get_robust_list 274 100, dup3 292 24,
pipe2 293 59, prlimit64 302 261, getcpu 309 168, renameat2 316 276, getrandom 318 278, membarrier 324 283,
statx 332 291, rseq 334 293, clone3 435 435, faccessat2 439 439
"""
_NEVER = """
execve 59 221, execveat 322 281, fork 57 -1, kill 62 129, tkill 200 130, ptrace 101 117, process_vm_readv 310 270,
process_vm_writev 311 271, pidfd_open 434 434, pidfd_getfd 438 438, unshare 272 97, setns 308 268, mount 165 40,
chroot 161 51, open_tree 428 428, fsopen 430 430, socket 41 198, socketpair 53 199, sendmsg 46 211, shmget 29 194,
semget 64 190, msgget 68 186, mq_open 240 180, add_key 248 217, keyctl 250 219, memfd_create 319 279,
memfd_secret 447 447, io_setup 206 0, io_uring_setup 425 425, bpf 321 280, perf_event_open 298 241,
userfaultfd 323 282, inotify_init1 294 26, fanotify_init 300 262, open_by_handle_at 304 265, openat2 437 437,
truncate 76 45, fallocate 285 47, copy_file_range 326 285, splice 275 76, vmsplice 278 75, pwritev 296 70,
link 86 -1, linkat 265 37, symlinkat 266 36, mknodat 259 33, fchmodat 268 53, fchownat 260 54, utimensat 280 88,
setxattr 188 5, fsetxattr 190 7, flock 73 32, chdir 80 49, fchdir 81 50, fadvise64 221 223, mincore 27 232,
cachestat 451 451, process_madvise 440 440, kexec_load 246 104, init_module 175 105, personality 135 92,
timer_create 222 107
"""
_STARTING = """
fork 57 -1, vfork 58 -1, execve 59 221, wait4 61 260, waitid 247 95, arch_prctl 158 -1, set_tid_address 218 96,
close_range 436 436
"""
OPENING = {"open", "openat"}
WRITING = {
    "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "ftruncate", "fsync",
    "fdatasync",
}  # fmt: skip
LOOKING = {
    "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "statfs",
}  # fmt: skip


def numbers(machine: str = "") -> dict[str, int]:
    """Return a dict from names to numbers of system calls.

    It is empty if there is no table for this machine, as on macOS and Windows.
    """
    return _numbers(_CALLS, machine)


def starting(machine: str = "") -> dict[str, int]:
    """Return the additional calls of a process that may start programs."""
    return _numbers(_STARTING, machine)


def never(machine: str = "") -> dict[str, int]:
    """Return the system calls that must never be allowed.

    The judge tries each of them, even if the list of allowed calls has it by mistake.
    """
    return _numbers(_NEVER, machine)


def _numbers(calls: str, machine: str) -> dict[str, int]:
    column = {"x86_64": 1, "aarch64": 2}.get(machine or platform.machine())
    if column is None or platform.system() != "Linux":
        return {}
    entries = [entry.split() for entry in calls.replace("\n", " ").split(",")]
    return {entry[0]: int(entry[column]) for entry in entries if int(entry[column]) >= 0}
