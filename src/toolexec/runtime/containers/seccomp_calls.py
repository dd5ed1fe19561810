"""The system calls that our seccomp profile allows whatever their arguments are, by what they are for.

Names that an architecture does not have, or that its kernel or library does not know yet, do no harm.
"""

from __future__ import annotations

from typing import Final

_FILES: Final = """
access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fremovexattr
fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr getxattrat ioctl lchown lgetxattr
link linkat listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat mkdir mkdirat mknod mknodat newfstatat
open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv
removexattr removexattrat rename renameat renameat2 rmdir sendfile setxattr setxattrat splice stat statfs statx symlink
symlinkat sync sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write writev
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch cachestat
io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit
"""
_WAITING: Final = """
epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2
pipe pipe2 poll ppoll pselect6 select signalfd signalfd4
"""
_MEMORY: Final = """
brk madvise map_shadow_stack membarrier memfd_create mincore mlock mlock2 mlockall mmap mprotect mremap mseal msync
munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect remap_file_pages
"""
_PROCESSES: Final = """
alarm arch_prctl capget capset execve execveat exit exit_group fork futex futex_requeue futex_wait futex_waitv
futex_wake get_robust_list get_thread_area getcpu getegid geteuid getgid getgroups getitimer getpgid getpgrp getpid
getppid getpriority getresgid getresuid getrlimit getrusage getsid gettid getuid ioprio_get ioprio_set kill
landlock_add_rule landlock_create_ruleset landlock_restrict_self pause pidfd_open pidfd_send_signal prctl prlimit64
restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr
sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam
sched_setscheduler sched_yield seccomp set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid
setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setuid sigaltstack
tgkill tkill vfork wait4 waitid
"""
_TIME: Final = """
adjtimex clock_adjtime clock_getres clock_gettime clock_nanosleep gettimeofday nanosleep time timer_create timer_delete
timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times
"""
_TALK: Final = """
accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg sendto
setsockopt shutdown
mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl semget semop
semtimedop shmat shmctl shmdt shmget
"""
_SYSTEM: Final = """
getrandom sysinfo uname
"""

ALLOWED: Final[tuple[str, ...]] = tuple(f"{_FILES} {_WAITING} {_MEMORY} {_PROCESSES} {_TIME} {_TALK} {_SYSTEM}".split())
