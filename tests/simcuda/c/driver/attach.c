/* The runtime that is linked into libnccl: the entry of every public cuda* function is pointed to ours, in memory only. */
#include "simcuda.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JUMP_BYTES = 12 }; /* mov rax, target; jmp rax */
static const ElfW(Sym) *symbols;
static size_t symbol_count;
static const char *names;
static uintptr_t base;

static int read_symbols(const char *path) {
    struct stat facts;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &facts)) return 0;
    const char *image = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (image == MAP_FAILED) return 0;
    const ElfW(Ehdr) *header = (const void *)image;
    const ElfW(Shdr) *sections = (const void *)(image + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++)
        if (sections[i].sh_type == SHT_SYMTAB) {
            symbols = (const void *)(image + sections[i].sh_offset);
            symbol_count = sections[i].sh_size / sizeof *symbols;
            names = image + sections[sections[i].sh_link].sh_offset;
        }
    return symbols != NULL;
}

const char *sim_symbol_name(const void *address) {
    for (size_t i = 0; i < symbol_count; i++)
        if (base + symbols[i].st_value == (uintptr_t)address && ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC) return names + symbols[i].st_name;
    return NULL;
}

void *sim_symbol(const char *name, size_t *size) {
    for (size_t i = 0; i < symbol_count; i++)
        if (symbols[i].st_shndx && !strcmp(names + symbols[i].st_name, name)) {
            if (size) *size = symbols[i].st_size;
            return (void *)(base + symbols[i].st_value);
        }
    return NULL;
}

static void redirect(unsigned char *at, void *target) {
    uintptr_t first = (uintptr_t)at & ~4095ul, end = ALIGN_UP((uintptr_t)at + JUMP_BYTES, 4096);
    if (mprotect((void *)first, end - first, PROT_READ | PROT_WRITE | PROT_EXEC)) abort();
    memcpy(at, (unsigned char[]){0x48, 0xb8}, 2);
    memcpy(at + 2, &target, 8);
    memcpy(at + 10, (unsigned char[]){0xff, 0xe0}, 2);
    mprotect((void *)first, end - first, PROT_READ | PROT_EXEC);
}

/* Return how many calls are ours, or less than 0 where NCCL can't be used. */
API int simcuda_attach(void *handle) {
    struct link_map *map;
    Dl_info info;
    int ours = 0, refused = 0;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map)) return -1;
    if (base) return base == map->l_addr ? 0 : -1;
    base = map->l_addr;
    if (!read_symbols(map->l_name)) {
        sim_log(0, "%s has no .symtab: where its runtime begins can't be told", map->l_name);
        return -2;
    }
    void *self = dladdr((void *)simcuda_attach, &info) ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    for (size_t i = 0; i < symbol_count; i++) {
        const char *name = names + symbols[i].st_name;
        char mine[160];
        if (ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC || !symbols[i].st_shndx || strncmp(name, "cuda", 4) || name[4] < 'A' || name[4] > 'Z') continue;
        snprintf(mine, sizeof mine, "simrt_%s", name);
        void *target = dlsym(self, mine);
        target ? ours++ : refused++;
        if (symbols[i].st_size < JUMP_BYTES) {
            sim_log(1, "%s is too small to be redirected: %d bytes", name, (int)symbols[i].st_size);
            continue;
        }
        redirect((unsigned char *)base + symbols[i].st_value, target ? target : sim_refusal(name));
    }
    sim_log(1, "attached to %s: %d calls simulated, %d refused", map->l_name, ours, refused);
    return ours ? ours : -3;
}

/* A program that loads NCCL by itself (torch) names it beforehand: it is loaded here first, and found by its soname. */
__attribute__((constructor)) static void attach_named(void) {
    const char *path = getenv("SIMCUDA_NCCL");
    if (!path || !*path) return;
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!handle || simcuda_attach(handle) < 0) sim_log(0, "can't attach to %s: %s", path, handle ? "see above" : dlerror());
}
