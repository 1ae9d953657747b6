/* Posts over the local socket or to a port: keep-alive connections, one request at a time on each.
 *
 *   load SOCKET|:PORT PATH BODY JOBS CONNECTIONS [HEADER]
 *
 * Eight zeros in a row in the header are replaced by the number of the request.
 * Prints accepted jobs, seconds, its own CPU seconds, and the median and 99th percentile of
 * POST to answer in microseconds. In C because it shares two cores with what it measures. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MOST 256

static char request[8192];
static int request_size;
static char *number;
static struct { int fd; double began; char got[4096]; int size; } line[MOST];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void post(int i) {
    static int posted;
    char digits[9];
    if (number) {
        snprintf(digits, sizeof digits, "%08d", posted++);
        memcpy(number, digits, 8);
    }
    line[i].began = now();
    line[i].size = 0;
    if (send(line[i].fd, request, request_size, MSG_NOSIGNAL) != request_size)
        fail("send");
}

/* Whether the whole answer is here. Dies of any answer but 202. */
static int answered(int i) {
    int room = sizeof line[i].got - 1 - line[i].size;
    ssize_t got = recv(line[i].fd, line[i].got + line[i].size, room, 0);
    if (got <= 0)
        fail("recv");
    line[i].size += got;
    line[i].got[line[i].size] = 0;
    char *end = strstr(line[i].got, "\r\n\r\n");
    char *length = strcasestr(line[i].got, "content-length:");
    if (!end || !length)
        return 0;
    if (line[i].size < end + 4 - line[i].got + atoi(length + 15))
        return 0;
    if (strncmp(line[i].got, "HTTP/1.1 202", 12)) {
        fprintf(stderr, "%s\n", line[i].got);
        exit(1);
    }
    return 1;
}

static int ascending(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

static int connected(const char *place) {
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in port = {.sin_family = AF_INET};
    int by_port = place[0] == ':', fd, on = 1;
    fd = socket(by_port ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    port.sin_port = htons(by_port ? atoi(place + 1) : 0);
    strncpy(local.sun_path, place, sizeof local.sun_path - 1);
    if (by_port)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (by_port ? connect(fd, (struct sockaddr *)&port, sizeof port)
                : connect(fd, (struct sockaddr *)&local, sizeof local))
        fail("connect");
    return fd;
}

int main(int argc, char **argv) {
    if (argc != 6 && argc != 7)
        return 2;
    int jobs = atoi(argv[4]), lines = atoi(argv[5]), sent = 0, done = 0;
    if (lines > MOST)
        lines = MOST;
    request_size = snprintf(request, sizeof request,
                            "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
                            "\r\n%s%sContent-Length: %zu\r\n\r\n%s",
                            argv[2], argc == 7 ? argv[6] : "", argc == 7 ? "\r\n" : "",
                            strlen(argv[3]), argv[3]);
    if (argc == 7)
        number = strstr(request, "00000000");
    double *took = malloc(jobs * sizeof *took);
    int poll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < lines; i++) {
        line[i].fd = connected(argv[1]);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, line[i].fd, &event))
            fail("epoll_ctl");
    }
    double began = now();
    for (int i = 0; i < lines && sent < jobs; i++, sent++)
        post(i);
    while (done < jobs) {
        struct epoll_event events[MOST];
        int ready = epoll_wait(poll, events, MOST, 30000);
        if (ready <= 0)
            fail("epoll_wait");
        for (int e = 0; e < ready; e++) {
            int i = events[e].data.u32;
            if (!answered(i))
                continue;
            took[done++] = now() - line[i].began;
            if (sent < jobs) {
                post(i);
                sent++;
            }
        }
    }
    double seconds = now() - began;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_utime.tv_usec / 1e6 + used.ru_stime.tv_sec +
                 used.ru_stime.tv_usec / 1e6;
    qsort(took, jobs, sizeof *took, ascending);
    printf("%d %.6f %.6f %.1f %.1f\n", done, seconds, cpu, took[jobs / 2] * 1e6,
           took[jobs - 1 - jobs / 100] * 1e6);
    return 0;
}
