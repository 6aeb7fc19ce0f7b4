/* Threads of the OpenMP that torch has loaded. A second pool of threads would compete with them for the cores.
 *
 * The kernels call its functions through pointers and use no pragmas. GCC translates pragmas to calls of libgomp, Clang
 * to calls of libomp. Torch loads libgomp on Linux; on macOS it loads libomp, which has the functions of both.
 */

#pragma once

#include "vectors.h"

/* For the other sources of the library alone. */
#define HIDDEN __attribute__((visibility("hidden")))

/* Does the tasks [from, to) of a job in the given thread. */
typedef void Tasks(const void *job, size from, size to, size thread);

/* Gives every thread equally many tasks, which follow each other. */
HIDDEN void run_equal_shares(Tasks *run, const void *job, size tasks, size threads);

/* Gives a thread its next task whenever it has finished one, because some tasks take longer than others. */
HIDDEN void run_one_by_one(Tasks *run, const void *job, size tasks, size threads);
