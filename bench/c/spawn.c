/* What the machine can do: two parents that spawn a program, feed, read and reap it.
 *
 *   spawn SECONDS REQUEST PROGRAM      prints how many runs a second both made together
 *
 * The same work a job as a slot does for it, and nothing else: three pipes, the request in,
 * both streams out to their ends, the exit code. The request is written before the spawn and
 * the pipes are read one after the other, which a program that says little allows and which
 * is the fastest way there is: the ratio is against the best that C can do. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PARENTS 2

extern char **environ;

static void fail(const char *what) {
    perror(what);
    _exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static size_t to_the_end(int fd) {
    static char buffer[65536];
    size_t size = 0;
    ssize_t got;
    while ((got = read(fd, buffer, sizeof buffer)) > 0)
        size += got;
    if (got < 0)
        fail("read");
    close(fd);
    return size;
}

static void once(char *const argv[], const char *request, size_t size) {
    int in[2], out[2], err[2], status;
    pid_t pid;
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
        fail("pipe2");
    if (write(in[1], request, size) != (ssize_t)size)
        fail("write");
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, err[1], 2);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    if (posix_spawn(&pid, argv[0], &actions, &attributes, argv, environ))
        fail("posix_spawn");
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(in[0]);
    close(in[1]);
    close(out[1]);
    close(err[1]);
    size_t answered = to_the_end(out[0]);
    to_the_end(err[0]);
    if (waitpid(pid, &status, 0) != pid)
        fail("waitpid");
    if (status != 0 || answered == 0) {
        fprintf(stderr, "%s ended with status %d after %zu bytes\n", argv[0], status, answered);
        _exit(1);
    }
}

static long parent(double seconds, char *const argv[], const char *request, size_t size) {
    long count = 0;
    double end = now() + seconds;
    while (now() < end) {
        once(argv, request, size);
        count++;
    }
    return count;
}

int main(int argc, char **argv) {
    static char request[65536];
    if (argc < 4)
        return 2;
    double seconds = atof(argv[1]);
    FILE *file = fopen(argv[2], "r");
    if (!file)
        fail(argv[2]);
    size_t size = fread(request, 1, sizeof request, file);
    fclose(file);
    int result[2];
    if (pipe2(result, O_CLOEXEC))
        fail("pipe2");
    double began = now();
    for (int i = 0; i < PARENTS; i++) {
        if (fork() == 0) {
            long count = parent(seconds, argv + 3, request, size);
            _exit(write(result[1], &count, sizeof count) != sizeof count);
        }
    }
    close(result[1]);
    long total = 0, count, parents = 0;
    while (read(result[0], &count, sizeof count) == sizeof count) {
        total += count;
        parents++;
    }
    while (wait(NULL) > 0)
        ;
    if (parents != PARENTS)
        return 1;
    printf("%.1f\n", total / (now() - began));
    return 0;
}
