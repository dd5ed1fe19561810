/* A libkrun for tests, whose machine is this process: it reports each call, and answers on the channels as a guest may. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int control = -1;
static int bound = 0;

#define REPORT(...) (fprintf(stderr, __VA_ARGS__), fflush(stderr), 0)

int32_t krun_create_ctx(void) { REPORT("create_ctx\n"); return 7; }
int32_t krun_set_vm_config(uint32_t ctx, uint8_t cpus, uint32_t mib) { return REPORT("vm_config %u %u %u\n", ctx, cpus, mib); }
int32_t krun_disable_implicit_vsock(uint32_t ctx) { return REPORT("no vsock %u\n", ctx); }
int32_t krun_disable_implicit_console(uint32_t ctx) { return REPORT("no console %u\n", ctx); }
int32_t krun_add_virtio_console_default(uint32_t ctx, int in, int out, int err) { return REPORT("console %u %d %d %d\n", ctx, in > 2, out, err); }
int32_t krun_add_virtio_console_multiport(uint32_t ctx) { REPORT("ports %u\n", ctx); return 3; }

int32_t krun_add_console_port_inout(uint32_t ctx, uint32_t console, const char *name, int in, int out)
{
    if (strcmp(name, "toolexec.control") == 0)
        control = in;
    return REPORT("port %u %u %s %d\n", ctx, console, name, in == out);
}

int32_t krun_add_virtiofs3(uint32_t ctx, const char *tag, const char *path, uint64_t shm, bool read_only)
{
    bound = access(path, R_OK | X_OK) == 0;
    return REPORT("virtiofs %u %s %s %" PRIu64 " %d readable=%d\n", ctx, tag, path, shm, read_only, bound);
}

int32_t krun_set_exec(uint32_t ctx, const char *path, const char *const argv[], const char *const envp[])
{
    return REPORT("exec %u %s %d %d\n", ctx, path, argv[0] == NULL, envp[0] == NULL);
}

int32_t krun_start_enter(uint32_t ctx)
{
    char line[64];
    ssize_t got;

    if (access("/etc", F_OK) == 0)
        return -1;
    REPORT("enter %u uid=%u proc=%d\n", ctx, geteuid(), access("/proc/self/fd", R_OK) == 0);
    if (write(control, "{\"ready\": {}}\n", 14) != 14)
        return -5;
    while ((got = read(control, line, sizeof line)) > 0)
        if (write(control, line, got) != got)
            return -5;
    _exit(0);
}
