// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads the clock without a pause to determine the timing accuracy of this machine: the cost of a reading, and the
// share of the time in which other work had the CPU.
//
//     clock_gaps CPU SECONDS
//
// Prints the median reading in ns, the number of readings per second above 1 us, and their share of the time.

#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 4096, LONG_NS = 1000 };

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
	static uint64_t taken[MOST];
	uint64_t readings = 0, longs = 0, away = 0, half = 0;
	unsigned median = 0;
	cpu_set_t cpus;

	if (argc != 3) {
		fprintf(stderr, "usage: clock_gaps CPU SECONDS\n");
		return 2;
	}
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[1]), &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);

	double seconds = atof(argv[2]);
	uint64_t begin = now(), end = begin + (uint64_t)(seconds * 1e9), last = begin;

	while (last < end) {
		uint64_t t = now(), gap = t - last;

		taken[gap < MOST ? gap : MOST - 1]++;
		readings++;
		if (gap > LONG_NS) {
			longs++;
			away += gap;
		}
		last = t;
	}
	while (median < MOST - 1 && (half += taken[median]) * 2 < readings)
		median++;
	printf("%u %.0f %.4f\n", median, (double)longs / seconds, (double)away / (double)(last - begin));
	return 0;
}
