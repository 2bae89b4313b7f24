/* What is broken: pairs of GPUs whose peer access loses or changes bytes, and GPUs that die. */
#include "simcuda.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int sim_names_pair(const char *setting, int a, int b) {
    const char *text = sim_setting(setting);
    if (!text) return 0;
    char *words = strdup(text), *rest = NULL;
    int found = 0, x, y;
    for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        found |= !strcmp(word, "all") || (sscanf(word, "%d-%d", &x, &y) == 2 && ((x == a && y == b) || (x == b && y == a))) ||
                 (sscanf(word, "%d>%d", &x, &y) == 2 && x == a && y == b); /* only what a writes into b's memory */
    free(words);
    return found;
}

long sim_way_mb_s(int from, int to) {
    const char *text = sim_setting("WAY_SLOW");
    int a, b;
    long mb_s;
    return text && from != to && sscanf(text, "%d>%d:%ld", &a, &b, &mb_s) == 3 && a == from && b == to ? mb_s : 0;
}

int sim_peer_fault(int mine, int theirs) {
    if (mine == theirs || mine < 0 || theirs < 0) return FAULT_NONE;
    if (sim_names_pair("P2P_LOSES", mine, theirs)) return FAULT_LOSES;
    return sim_names_pair("P2P_CHANGES", mine, theirs) ? FAULT_CHANGES : FAULT_NONE;
}

int sim_is_chosen(const char *setting, int gpu, long *number) {
    const char *text = sim_setting(setting);
    if (!text) return 0;
    char *words = strdup(text), *rest = NULL;
    int found = 0;
    for (char *word = strtok_r(words, ",", &rest); word && !found; word = strtok_r(NULL, ",", &rest)) {
        char *colon = strchr(word, ':');
        if (colon) *colon = 0;
        found = !strcmp(word, "all") || atoi(word) == gpu;
        if (found && number && colon) *number = atol(colon + 1);
    }
    free(words);
    return found;
}

static _Atomic long launches[MOST_GPUS];
void sim_count_launch(int gpu) { launches[gpu]++; }

/* SIMCUDA_GPU_DIES=2 is dead from the start, =2:5 falls off the bus (Xid 79) after its fifth kernel. */
CUresult sim_gpu_health(int gpu) {
    long after = 0;
    if (!sim_is_chosen("GPU_DIES", gpu, &after) || launches[gpu] < after) return CUDA_SUCCESS;
    sim_log(1, "GPU %d has died", gpu);
    return after ? CUDA_ERROR_LAUNCH_FAILED : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* Whether nobody on this machine has had the fault yet: a file beside the machine's says so. */
static int is_first(const char *fault) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", sim_machine_path(), fault);
    int file = open(path, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
    return file >= 0;
}

static void sleep_for_ever(void) { for (;;) pause(); }
static void stop(void) { raise(SIGSTOP); }
static void die(void) { raise(SIGKILL); }

/* What a network does that fails below a job: every TCP connection of this process ends, and the process goes on. */
static void cut_connections(void) {
    struct sockaddr_storage peer;
    for (int fd = 3; fd < 4096; fd++) {
        socklen_t size = sizeof peer;
        if (!getpeername(fd, (struct sockaddr *)&peer, &size) && peer.ss_family != AF_UNIX) shutdown(fd, SHUT_RDWR);
    }
}

/* SIMCUDA_RANK_STOPS=1:20 stops the first process that launches its twentieth kernel of NCCL's on GPU 1. */
void sim_meet_rank_fault(int gpu) {
    static const struct { const char *setting; void (*meet)(void); } faults[] = {
        {"RANK_STOPS", stop}, {"RANK_DIES", die}, {"RANK_SLEEPS", sleep_for_ever}, {"RANK_CUT", cut_connections}};
    static _Atomic long collectives[MOST_GPUS];
    long now = ++collectives[gpu];
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        long at = 1;
        if (!sim_is_chosen(faults[i].setting, gpu, &at) || now != at || !is_first(faults[i].setting)) continue;
        faults[i].meet();
    }
}
