/* What CUDA's public headers need of a file that lies in another of its packages: empty words for a C compiler. */
#pragma once
#define __device_builtin__
#define __cudart_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define CUDARTAPI
#define __host__
#define __device__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __location__(where)
