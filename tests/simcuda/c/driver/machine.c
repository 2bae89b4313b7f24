/* The machine's file: one answer a line, `NAME/ARG VALUE`, as tests/nvmlsim writes it, and SIMCUDA_ settings with them. */
#include "simcuda.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct { char *key, *value; } answers[1 << 15];
static int answer_count;
static char path[PATH_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int by_key(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The file is that of the simulated NVML, which lies beside us unless SIMCUDA_MACHINE names another. */
static void load(void) {
    const char *named = getenv("SIMCUDA_MACHINE");
    Dl_info self;
    if (named && *named) {
        snprintf(path, sizeof path, "%s", named);
    } else if (dladdr((void *)load, &self)) {
        const char *slash = strrchr(self.dli_fname, '/');
        snprintf(path, sizeof path, "%.*s/libnvidia-ml.so.1.machine", slash ? (int)(slash - self.dli_fname) : 1, slash ? self.dli_fname : ".");
    }
    FILE *file = fopen(path, "re");
    if (!file) sim_log(0, "no machine: %s can't be read; there are no GPUs (SIMCUDA_MACHINE names the file)", path);
    char *line = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0 && answer_count < (1 << 15)) {
        line[strcspn(line, "\n")] = 0;
        char *space = strchr(line, ' ');
        answers[answer_count].value = strdup(space ? space + 1 : "");
        if (space) *space = 0;
        answers[answer_count++].key = strdup(line);
    }
    free(line);
    if (file) fclose(file);
    qsort(answers, (size_t)answer_count, sizeof *answers, by_key);
}

const char *sim_machine_path(void) {
    pthread_once(&once, load);
    return path;
}

const char *sim_answer(const char *format, ...) {
    char key[256], *wanted = key;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    pthread_once(&once, load);
    struct { char *key, *value; } *found = bsearch(&wanted, answers, (size_t)answer_count, sizeof *answers, by_key);
    return found && *found->value != '!' ? found->value : NULL;
}

const char *sim_setting(const char *name) {
    char full[96];
    snprintf(full, sizeof full, "SIMCUDA_%s", name);
    const char *set = getenv(full);
    return set && *set ? set : sim_answer("%s", full);
}

long sim_number(const char *name, long otherwise) {
    const char *text = sim_setting(name);
    return text ? atol(text) : otherwise;
}
