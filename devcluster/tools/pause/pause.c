/* Holds a pod's namespaces open: waits for SIGTERM or SIGINT, and reaps orphans when the pod shares its PID namespace. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal_number) { (void)signal_number; _exit(0); }

static void reap(int signal_number) {
    (void)signal_number;
    while (waitpid(-1, NULL, WNOHANG) > 0) { }
}

int main(void) {
    struct sigaction on_leave = {.sa_handler = leave};
    struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGTERM, &on_leave, NULL);
    sigaction(SIGINT, &on_leave, NULL);
    sigaction(SIGCHLD, &on_child, NULL);
    for (;;) pause();
}
