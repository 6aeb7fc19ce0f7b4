#include "threads.h"

/* The functions of libgomp that are needed, with their names there. */
static void (*GOMP_parallel)(void (*run)(void *), void *data, unsigned threads, unsigned flags);
static int (*omp_get_num_threads)(void);
static int (*omp_get_thread_num)(void);

/* To be called first; without it, one thread does everything. */
void synthattn_use_openmp(void *parallel, void *num_threads, void *thread_num) {
    GOMP_parallel = (void (*)(void (*)(void *), void *, unsigned, unsigned))parallel;
    omp_get_num_threads = (int (*)(void))num_threads;
    omp_get_thread_num = (int (*)(void))thread_num;
}

typedef struct {
    Tasks *run;
    const void *job;
    size tasks, next;
} Team;

static void take_share(void *data) {
    const Team *team = data;
    size thread = omp_get_thread_num(), threads = omp_get_num_threads();
    team->run(team->job, team->tasks * thread / threads, team->tasks * (thread + 1) / threads, thread);
}

static void take_next(void *data) {
    Team *team = data;
    size thread = omp_get_thread_num(), task;
    while ((task = __atomic_fetch_add(&team->next, 1, __ATOMIC_RELAXED)) < team->tasks)
        team->run(team->job, task, task + 1, thread);
}

static void run_team(void (*take)(void *), Team team, size threads) {
    if (GOMP_parallel)
        GOMP_parallel(take, &team, (unsigned)threads, 0);
    else
        team.run(team.job, 0, team.tasks, 0);
}

void run_equal_shares(Tasks *run, const void *job, size tasks, size threads) {
    run_team(take_share, (Team){run, job, tasks, 0}, threads);
}

void run_one_by_one(Tasks *run, const void *job, size tasks, size threads) {
    run_team(take_next, (Team){run, job, tasks, 0}, threads);
}
