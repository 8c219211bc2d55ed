// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Counts the frames of a plan at the receiving interface and drops them. All other frames pass on.
//
// The rules are those of `wb_measure::Analyser`: the same sequence windows, the same histograms. Each receive queue has
// a separate account, which the CPU that serves the queue writes and user space reads. If several CPUs may serve a
// queue, a lock (`taken`) orders them.

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define INLINE static __always_inline
// Largest offset of a tag or a header.
#define MOST_AT 960
#define TAG_LEN 18
#define TAG_MAGIC 0xb5e1
#define PKTGEN_LEN 16
#define PKTGEN_MAGIC 0xbe9be955
#define PROTOCOL_ICMPV6 58
#define MOST_VLANS 4
#define MOST_LABELS 8
#define MOST_EXTENSIONS 4
// Polls of a locked account, about 100 ms (bpf.h: BPF_MAX_LOOPS), and the number of such periods in a row: the CPU that
// holds the lock may be a virtual CPU that the hypervisor has suspended.
#define LOOKS (1 << 23)
#define MOST_WAITS 4

// histogram.rs: 512 slots for each power of two up to 2^42.
#define PRECISION 9
#define SLOTS 17408
#define MOST_VALUE ((1ULL << 42) - 1)
// Same values as in flow.rs.
#define NO_DELAY (-0x7fffffffffffffffLL - 1)
#define JITTER_LIMIT ((1ULL << 42) - 1)
#define JITTER_FRACTION 20
// Same value as in analyser.rs.
#define LARGEST_ADVANCE (1ULL << 61)

// These structures have the layout of those in `receiver.rs`. `flow` also has the layout of the one in `wb_measure`.
struct settings {
	__u32 first_flow;
	__u32 flows;
	__u32 ramp_flow;
	// Several CPUs may write one account: the generic receive path does not bind a queue to a CPU.
	__u32 shared;
	// Words of 64 sequence numbers in the window of a flow: a power of two.
	__u32 words;
	// Gaps count from the first sequence number seen of each flow.
	__u32 sender_unknown;
	// The awaited flows are those around the flow of the first tagged frame.
	__u32 around_first;
};

const volatile struct settings C = {};

struct control {
	// 1 while frames are counted.
	__u64 counts;
	// Wall clock minus monotonic clock, in ns.
	__u64 wall_offset;
	// Wall clock, in ns.
	__u64 drain_since;
	__u64 end;
	// Frames that pass on may belong to other users of the interface and are not counted as foreign.
	__u64 beside_others;
	// Wall clock, in ns: frames stamped earlier belong to an earlier run.
	__u64 since;
	// Flow of the first tagged frame, plus 1; 0 before it. Written by this program.
	__u64 seen;
	// Shortest silence that counts as an outage, in ns.
	__u64 outage_threshold;
};

struct control S = {};

struct flow {
	__u64 next;
	__u64 received;
	__u64 octets;
	__s64 last_delay;
	__u64 flags;
	__s64 jitter;
	__u64 latency_low;
	__u64 latency_high;
	__u64 latency_min;
	__u64 latency_max;
	__u64 first_rx;
	__u64 last_rx;
	__u64 duplicates;
	__u64 reordered;
	__u64 late;
	__u64 unmeasured;
};

// Same layout as `Record` in outages.rs.
struct outages {
	__u64 earlier;
	__u64 longest_begin;
	__u64 longest_end;
	__u64 last_begin;
	__u64 last_end;
	__u64 skipped_from;
	__u64 skipped_to;
	__u64 missing;
};

#define LAST_WAS_HIGHEST 1
#define HAS_JITTER 256
// The upper half of `flags` holds the lowest number seen, from which gaps count if `C.sender_unknown`.
#define HEAD_SHIFT 32

struct histogram {
	__u64 clamped;
	__u64 sum_low;
	__u64 sum_high;
	__u64 squares_low;
	__u64 squares_high;
	__u64 min;
	__u64 max;
	__u64 slots[SLOTS];
};

struct lane {
	__u64 received;
	__u64 octets;
	__u64 duplicates;
	__u64 reordered;
	__u64 late;
	__u64 missing;
	__u64 foreign;
	__u64 foreign_octets;
	__u64 beyond_window;
	__u64 clock_errors;
	__u64 unstamped;
	__u64 ramp;
	// Arrival of the first frame; 0 before it.
	__u64 first_rx;
	__u64 last_rx;
	__u64 largest_gap;
	// Highest number with a gap before it; 0 without gaps.
	__u64 after_gap;
	struct histogram latency;
	struct histogram ipdv_below;
	struct histogram ipdv_above;
	struct histogram inter_arrival;
	struct histogram unpaired_jitter;
	// Foreign frames with a wirebench tag; below, with a pktgen tag.
	__u64 unplanned;
	__u64 pktgen;
	// 1 while a CPU writes the account; used only if `C.shared`.
	__u64 taken;
	// Frames that were not counted because the lock was not available.
	__u64 dropped;
	// Foreign frames with a tag stamped before the run.
	__u64 stale;
	// Numbers below the head of each flow.
	__u64 head;
	// Outages so far, minus those that were taken back.
	__u64 outages;
	// Outages of flows for which the map has no room.
	__u64 outages_not_kept;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lane);
} lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} windows SEC(".maps");

// Flows with outages, by the number of their account.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct outages);
} outages SEC(".maps");

char _license[] SEC("license") = "Dual MIT/GPL";

// Adds to a counter that is written without the lock.
#define ADD(counter, n) \
	do { \
		if (C.shared) \
			__sync_fetch_and_add(&(counter), (n)); \
		else \
			(counter) += (n); \
	} while (0)

struct taking {
	__u32 queue;
	__u32 done;
};

static long try_to_take(__u32 i, struct taking *t)
{
	struct lane *q = bpf_map_lookup_elem(&lanes, &t->queue);

	if (!q)
		return 1;
	if (*(volatile __u64 *)&q->taken || __sync_val_compare_and_swap(&q->taken, 0, 1))
		return 0;
	t->done = 1;
	return 1;
}

// Locks the account of a queue for this CPU. Other programs do not interrupt the holder, so the wait is short unless a
// virtual CPU is suspended. Returns 0 if the wait took too long.
static __noinline int take(__u32 queue)
{
	struct taking t = { .queue = queue };

#pragma unroll
	for (int i = 0; i < MOST_WAITS; i++)
		if (!t.done)
			bpf_loop(LOOKS, try_to_take, &t, 0);
	return t.done;
}

INLINE void give_back(struct lane *q)
{
	// Includes a barrier: all earlier writes are visible before the lock is free.
	__sync_lock_test_and_set(&q->taken, 0);
}

// Adds to a 128-bit number.
INLINE void add_wide(__u64 *low, __u64 *high, __u64 n)
{
	*low += n;
	if (*low < n)
		(*high)++;
}

INLINE __u32 highest_bit(__u64 v)
{
	__u32 bit = 0;

	if (v >> 32) {
		v >>= 32;
		bit += 32;
	}
	if (v >> 16) {
		v >>= 16;
		bit += 16;
	}
	if (v >> 8) {
		v >>= 8;
		bit += 8;
	}
	if (v >> 4) {
		v >>= 4;
		bit += 4;
	}
	if (v >> 2) {
		v >>= 2;
		bit += 2;
	}
	return bit + (__u32)(v >> 1);
}

INLINE void record(struct histogram *h, __u64 value)
{
	__u64 shift = 0, slot, square;

	if (value > MOST_VALUE) {
		h->clamped++;
		value = MOST_VALUE;
	}
	if (value >> (PRECISION + 1))
		shift = highest_bit(value) - PRECISION;
	slot = (shift << PRECISION) + (value >> shift);
	if (slot >= SLOTS)
		return;
	h->slots[slot]++;
	add_wide(&h->sum_low, &h->sum_high, value);
	if (value >> 32) {
		// (high 2^32 + low)^2
		__u64 high = value >> 32, low = value & 0xffffffff, middle = 2 * high * low;

		square = low * low;
		h->squares_high += high * high + (middle >> 32);
		add_wide(&h->squares_low, &h->squares_high, middle << 32);
	} else {
		square = value * value;
	}
	add_wide(&h->squares_low, &h->squares_high, square);
	if (value < h->min)
		h->min = value;
	if (value > h->max)
		h->max = value;
}

INLINE __u64 *word_of(__u32 base, __u64 block)
{
	__u32 at = base + ((__u32)block & (C.words - 1));

	return bpf_map_lookup_elem(&windows, &at);
}

struct forget {
	__u64 block;
	__u32 base;
};

static long forget_word(__u32 i, struct forget *f)
{
	__u64 *word = word_of(f->base, f->block + i);

	if (word)
		*word = 0;
	return 0;
}

// Clears the bits of `count` numbers starting at `from`: the ring still holds the bits of the previous window.
static __noinline int forget(__u32 base, __u64 from, __u64 count)
{
	struct forget f = { .block = from >> 6, .base = base };
	__u64 end = from + count, *word;

	if (count >= (__u64)C.words * 64) {
		bpf_loop(C.words, forget_word, &f, 0);
		return 0;
	}
	word = word_of(base, from >> 6);
	if (!word)
		return 0;
	if (from >> 6 == end >> 6) {
		*word &= ~(((1ULL << (count & 63)) - 1) << (from & 63));
		return 0;
	}
	*word &= (1ULL << (from & 63)) - 1;
	f.block++;
	if ((end >> 6) > f.block)
		bpf_loop((end >> 6) - f.block, forget_word, &f, 0);
	word = word_of(base, end >> 6);
	if (word)
		*word &= ~((1ULL << (end & 63)) - 1);
	return 0;
}

// Returns the offset of the tag behind the last header, or 0 if the frame is truncated or a later fragment. Sets
// `quiet` for frames that hosts exchange on their own.
INLINE __u32 headers_end(void *data, void *end, int *quiet)
{
	__u16 kind;
	__u32 at = 14;
	__u8 protocol;

	if (data + 14 > end)
		return 0;
	*quiet = *(__u8 *)data & 1;
	kind = *(__u16 *)(data + 12);
#pragma unroll
	for (int i = 0; i < MOST_VLANS; i++) {
		if (kind != bpf_htons(0x8100) && kind != bpf_htons(0x88a8) && kind != bpf_htons(0x9100))
			break;
		if (data + at + 4 > end)
			return 0;
		kind = *(__u16 *)(data + at + 2);
		at += 4;
	}
	if (kind == bpf_htons(0x8847) || kind == bpf_htons(0x8848)) {
		__u8 bottom = 0, version;

#pragma unroll
		for (int i = 0; i < MOST_LABELS; i++) {
			if (bottom)
				break;
			if (data + at + 4 > end)
				return 0;
			bottom = *(__u8 *)(data + at + 2) & 1;
			at += 4;
		}
		if (!bottom || data + at + 1 > end)
			return 0;
		version = *(__u8 *)(data + at) >> 4;
		if (version == 4)
			kind = bpf_htons(0x0800);
		else if (version == 6)
			kind = bpf_htons(0x86dd);
		else
			return at;
	}
	if (kind == bpf_htons(0x0800)) {
		__u32 len;

		if (data + at + 20 > end || *(__u16 *)(data + at + 6) & bpf_htons(0x1fff))
			return 0;
		len = (*(__u8 *)(data + at) & 15) * 4;
		protocol = *(__u8 *)(data + at + 9);
		if (len < 20)
			return 0;
		at += len;
	} else if (kind == bpf_htons(0x86dd)) {
		if (data + at + 40 > end)
			return 0;
		protocol = *(__u8 *)(data + at + 6);
		at += 40;
#pragma unroll
		for (int i = 0; i < MOST_EXTENSIONS; i++) {
			if (protocol != 0 && protocol != 43 && protocol != 60 && protocol != 44)
				break;
			if (at > MOST_AT || data + at + 8 > end)
				return 0;
			if (protocol == 44 && *(__u16 *)(data + at + 2) & bpf_htons(0xfff8))
				return 0;
			__u8 next = *(__u8 *)(data + at), more = *(__u8 *)(data + at + 1);

			at += protocol == 44 ? 8 : 8 + more * 8;
			protocol = next;
		}
	} else if (kind == bpf_htons(0x0806)) {
		*quiet = 1;
		return at + 28;
	} else {
		return at;
	}
	if (at > MOST_AT)
		return 0;
	if (protocol == IPPROTO_TCP) {
		__u32 len;

		if (data + at + 13 > end)
			return 0;
		len = (*(__u8 *)(data + at + 12) >> 4) * 4;
		return len < 20 ? 0 : at + len;
	}
	if (protocol == IPPROTO_UDP || protocol == IPPROTO_ICMP)
		return at + 8;
	if (protocol == PROTOCOL_ICMPV6) {
		if (data + at + 1 <= end) {
			__u8 type = *(__u8 *)(data + at);

			// Group membership and neighbour discovery.
			*quiet |= (type >= 130 && type <= 137) || type == 143;
		}
		return at + 8;
	}
	return at;
}

INLINE void smooth(struct flow *f, __u64 variation)
{
	if (variation > JITTER_LIMIT)
		variation = JITTER_LIMIT;
	f->flags |= HAS_JITTER;
	// BPF shifts signed numbers arithmetically, as Rust does.
	f->jitter += ((__s64)(variation << JITTER_FRACTION) - f->jitter) >> 4;
}

// Records the delay of an original frame.
INLINE __s64 measure(struct lane *q, struct flow *f, __u64 tx, __u64 rx)
{
	__u64 delay = rx - tx;

	if (!tx) {
		q->unstamped++;
		f->unmeasured++;
		return NO_DELAY;
	}
	if (tx > rx) {
		__u64 ahead = tx - rx;

		q->clock_errors++;
		f->unmeasured++;
		return -(__s64)(ahead < LARGEST_ADVANCE ? ahead : LARGEST_ADVANCE);
	}
	record(&q->latency, delay);
	f->latency_low += delay;
	f->latency_high += f->latency_low < delay;
	if (delay < f->latency_min)
		f->latency_min = delay;
	if (delay > f->latency_max)
		f->latency_max = delay;
	return delay;
}

// Records an outage in which `gap` numbers from `from` on were skipped, if the silence was long enough. Returns 0 if it was
// not, 1 if it is an outage, 2 if it is one for which there is no room.
static __noinline int interrupted(__u32 account, __u64 from, __u64 gap, __u64 begin, __u64 end)
{
	struct outages none = {}, *o;

	if (end < begin || end - begin < S.outage_threshold)
		return 0;
	o = bpf_map_lookup_elem(&outages, &account);
	if (!o) {
		bpf_map_update_elem(&outages, &account, &none, BPF_NOEXIST);
		o = bpf_map_lookup_elem(&outages, &account);
	}
	if (!o)
		return 2;
	if (o->missing) {
		o->earlier++;
		if (o->last_end - o->last_begin > o->longest_end - o->longest_begin) {
			o->longest_begin = o->last_begin;
			o->longest_end = o->last_end;
		}
	}
	o->last_begin = begin;
	o->last_end = end;
	o->skipped_from = from;
	o->skipped_to = from + gap;
	o->missing = gap;
	return 1;
}

// Takes a number that arrived later from the last outage. Returns 1 if this takes the outage back.
static __noinline int filled(__u32 account, __u64 sequence)
{
	struct outages *o = bpf_map_lookup_elem(&outages, &account);

	if (!o || !o->missing || sequence < o->skipped_from || sequence >= o->skipped_to)
		return 0;
	return !--o->missing;
}

// Handles a frame older than the highest number. Returns 1 if it is an original.
static __noinline int older(struct lane *q, struct flow *f, __u32 account, __u64 sequence)
{
	__u32 base = account * C.words;
	__u64 age, bit = 1ULL << (sequence & 63), *word;

	if (!q || !f)
		return 0;
	age = f->next - sequence;
	word = word_of(base, sequence >> 6);
	if (age > (__u64)C.words * 64 || !word) {
		q->beyond_window++;
	} else if (!(*word & bit)) {
		*word |= bit;
		f->reordered++;
		q->reordered++;
		if (C.sender_unknown && sequence < f->flags >> HEAD_SHIFT) {
			__u64 lower = (f->flags >> HEAD_SHIFT) - sequence;

			f->flags -= lower << HEAD_SHIFT;
			q->head -= lower;
			q->missing += lower - 1;
		} else {
			q->missing--;
		}
		if (filled(account, sequence))
			q->outages--;
		return 1;
	}
	f->duplicates++;
	q->duplicates++;
	return 0;
}

INLINE void arrive(struct lane *q, struct flow *f, __u32 account, __u32 wire, __u64 tx, __u64 rx, __u32 octets)
{
	__u64 next = f->next, before = f->last_rx, sequence, *word;
	__u32 base = account * C.words;
	__s64 delay, last = f->last_delay, ahead = (__s32)(wire - (__u32)next);

	q->received++;
	q->octets += octets;
	if (q->first_rx)
		record(&q->inter_arrival, rx > q->last_rx ? rx - q->last_rx : 0);
	else
		q->first_rx = rx;
	if (rx > q->last_rx)
		q->last_rx = rx;
	f->received++;
	f->octets += octets;
	if (rx < f->first_rx)
		f->first_rx = rx;
	if (rx > f->last_rx)
		f->last_rx = rx;

	// Numbers start at 0, so a step back to below 0 is a leap forward.
	sequence = ahead < 0 && (__u64)-ahead > next ? wire : next + ahead;
	if (sequence >= next) {
		__u64 gap = sequence - next;

		if (gap) {
			forget(base, next, gap);
			if (C.sender_unknown && f->received == 1) {
				f->flags |= sequence << HEAD_SHIFT;
				q->head += gap;
			} else {
				q->missing += gap;
				if (gap > q->largest_gap)
					q->largest_gap = gap;
				if (sequence > q->after_gap)
					q->after_gap = sequence;
				if (next) {
					int kind = interrupted(account, next, gap, before, rx);

					if (kind)
						q->outages++;
					if (kind == 2)
						q->outages_not_kept++;
				}
			}
		}
		word = word_of(base, sequence >> 6);
		if (word)
			*word |= 1ULL << (sequence & 63);
		f->next = sequence + 1;
		delay = measure(q, f, tx, rx);
		f->last_delay = delay;
		if (last != NO_DELAY && delay != NO_DELAY) {
			__s64 variation = delay - last;
			__u64 amount = variation < 0 ? -(__u64)variation : (__u64)variation;

			if (gap || !(f->flags & LAST_WAS_HIGHEST))
				record(&q->unpaired_jitter, amount);
			else if (variation < 0)
				record(&q->ipdv_below, amount);
			else
				record(&q->ipdv_above, amount);
			smooth(f, amount);
		}
		f->flags |= LAST_WAS_HIGHEST;
	} else {
		if (!older(q, f, account, sequence))
			return;
		delay = measure(q, f, tx, rx);
		f->last_delay = delay;
		f->flags &= ~(__u64)LAST_WAS_HIGHEST;
		if (last != NO_DELAY && delay != NO_DELAY) {
			__s64 variation = delay - last;
			__u64 amount = variation < 0 ? -(__u64)variation : (__u64)variation;

			record(&q->unpaired_jitter, amount);
			smooth(f, amount);
		}
	}
	if (rx > S.drain_since) {
		f->late++;
		q->late++;
	}
}

// First awaited flow: `range_around` of the traffic engine, with `C.flows` as its count.
INLINE __u32 first_around(__u32 number)
{
	__u64 beside = C.flows / 2, last = (__u64)C.ramp_flow - 1 - C.flows, seen;

	seen = *(volatile __u64 *)&S.seen;
	if (!seen) {
		__sync_val_compare_and_swap(&S.seen, 0, (__u64)number + 1);
		seen = *(volatile __u64 *)&S.seen;
	}
	seen = seen - 1 > beside ? seen - 1 - beside : 0;
	return seen < last ? seen : last;
}

SEC("xdp.frags")
int wb_account(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *tag;
	__u32 queue = ctx->rx_queue_index, number, wire, at, octets;
	__u64 rx, tx, *stray;
	struct lane *q;
	struct flow *f;
	int quiet = 0;

	// Read the clock first, so that cache misses do not add to the latency.
	rx = bpf_ktime_get_ns();
	if (!*(volatile __u64 *)&S.counts)
		return XDP_PASS;
	rx += S.wall_offset;
	if (rx > S.end)
		return XDP_PASS;
	q = bpf_map_lookup_elem(&lanes, &queue);
	if (!q)
		return XDP_PASS;
	at = headers_end(data, end, &quiet);
	octets = bpf_xdp_get_buff_len(ctx) + 4;
	// The verifier of Linux 7.2 knows of which number `at` is a multiple in only one of two bounds, so it assumes
	// that 18 bytes from offset 1000 may end before offset 1018.
	if (!at || at > MOST_AT)
		goto other;
	tag = data + at;
	if (tag + TAG_LEN > end || *(__u16 *)tag != bpf_htons(TAG_MAGIC))
		goto untagged;
	number = bpf_ntohl(*(__u32 *)(tag + 2));
	wire = bpf_ntohl(*(__u32 *)(tag + 6));
	tx = bpf_be64_to_cpu(*(__u64 *)(tag + 10));
	if (number == C.ramp_flow) {
		ADD(q->ramp, 1);
		return XDP_DROP;
	}
	// No run uses the number after all flows, so a first frame with that number does not identify a run.
	if (C.around_first && number == C.ramp_flow - 1) {
		stray = &q->unplanned;
		goto tagged;
	}
	number -= C.around_first ? first_around(number) : C.first_flow;
	if (number >= C.flows) {
		stray = &q->unplanned;
		goto tagged;
	}
	if (tx < *(volatile __u64 *)&S.since) {
		stray = &q->stale;
		goto tagged;
	}
	number += queue * C.flows;
	f = bpf_map_lookup_elem(&flows, &number);
	if (!f)
		goto other;
	if (C.shared && !take(queue)) {
		ADD(q->dropped, 1);
		return XDP_DROP;
	}
	arrive(q, f, number, wire, tx, rx, octets);
	if (C.shared)
		give_back(q);
	return XDP_DROP;

untagged:
	if (tag + PKTGEN_LEN > end || *(__u32 *)tag != bpf_htonl(PKTGEN_MAGIC))
		goto other;
	stray = &q->pktgen;
tagged:
	// Hosts do not send such frames on their own.
	quiet = 0;
	if (!S.beside_others)
		ADD(*stray, 1);
other:
	if (!quiet && !S.beside_others) {
		ADD(q->foreign, 1);
		ADD(q->foreign_octets, octets);
	}
	return XDP_PASS;
}
