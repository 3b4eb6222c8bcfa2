// SPDX-License-Identifier: GPL-2.0
/* XPS: build a map from masks.
 *
 * Pure functions of bitmaps and counts: no device, no lock, no CPU mask, so
 * that machines of any size can be tried on any other.
 *
 * The masks give each queue its ids; a map gives each id its queues. To store
 * equal lists once, queues are handed out in ascending order, and all slots
 * that got the same queues so far share one set. A queue splits each set that
 * it reaches in those that have it and those that don't, so that at the end a
 * set is a distinct list and knows its slots. A set left by all its slots is
 * used again: there are never more sets than slots, the empty one, and one in
 * the making.
 *
 * Time goes with the number of bits in the masks, memory with that of slots.
 */
#include <linux/bitmap.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/numa.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <net/xps.h>
#include <kunit/static_stub.h>
#include <kunit/visibility.h>

#include "xps.h"

/**
 * struct xps_set - slots that have the same queues so far
 * @members: number of slots
 * @len: number of queues
 * @queue: the latest of these queues
 * @split_by: queue that last split this set, plus 1
 * @split_to: the set that got it, or the next one in the list of unused sets
 * @list: where this list will stand in the map
 */
struct xps_set {
	u32	members;
	u32	len;
	u32	queue;
	u32	split_by;
	u32	split_to;
	u32	list;
};

/* Set 0 is the empty one, and is never unused: so 0 ends the list of those. */
struct xps_sets {
	struct xps_set	*set;
	u32		*of_slot;
	u32		nr;
	u32		unused;
};

/**
 * xps_alloc - zeroed memory for XPS
 * @n: number of elements
 * @size: size of each in bytes
 *
 * All of XPS allocates here, so that tests can make each allocation fail.
 *
 * Context: process context, may sleep.
 * Return: memory to be freed with kvfree(), or %NULL.
 */
void *xps_alloc(size_t n, size_t size)
{
	KUNIT_STATIC_STUB_REDIRECT(xps_alloc, n, size);

	return kvcalloc(n, size, GFP_KERNEL_ACCOUNT);
}
EXPORT_SYMBOL_IF_KUNIT(xps_alloc);

static const unsigned long *xps_row(const struct xps_layout *layout, u32 queue)
{
	return layout->masks + queue * BITS_TO_LONGS(layout->nr_ids);
}

static u32 xps_split(struct xps_sets *sets, struct xps_set *set, u32 queue)
{
	u32 to = sets->unused;

	if (to)
		sets->unused = sets->set[to].split_to;
	else
		to = sets->nr++;

	sets->set[to] = (struct xps_set) {
		.len = set->len + 1,
		.queue = queue,
	};
	set->split_by = queue + 1;
	set->split_to = to;
	return to;
}

/* Queues must come in ascending order, each slot at most once for a queue. */
static void xps_add(struct xps_sets *sets, u32 slot, u32 queue)
{
	u32 from = sets->of_slot[slot];
	struct xps_set *set = &sets->set[from];
	u32 to = set->split_to;

	if (set->split_by != queue + 1)
		to = xps_split(sets, set, queue);

	sets->of_slot[slot] = to;
	sets->set[to].members++;
	if (!--set->members && from) {
		set->split_to = sets->unused;
		sets->unused = from;
	}
}

static void xps_sort(struct xps_sets *sets, const struct xps_layout *layout)
{
	u32 queue, id;

	for (queue = 0; queue < layout->nr_queues; queue++) {
		if (layout->tc[queue] < 0)
			continue;
		for_each_set_bit(id, xps_row(layout, queue), layout->nr_ids)
			xps_add(sets, layout->tc[queue] * layout->nr_ids + id,
				queue);
		cond_resched();
	}
}

/* Gives each list its place behind the slots; returns the map's words. */
static u32 xps_place_lists(struct xps_sets *sets, u32 nr_slots)
{
	u32 words = nr_slots;
	u32 i;

	for (i = 1; i < sets->nr; i++) {
		struct xps_set *set = &sets->set[i];

		if (!set->members || set->len < 2)
			continue;
		set->list = words;
		words += 1 + set->len;
	}
	return words;
}

static u32 xps_slot(const struct xps_set *set)
{
	switch (set->len) {
	case 0:
		return XPS_NO_QUEUE;
	case 1:
		return set->queue;
	default:
		return XPS_LIST | set->list;
	}
}

/* The first slot of a list that has the queue writes it for all of them. */
static void xps_fill_lists(struct xps_map *map, const struct xps_layout *layout)
{
	u32 queue, id;

	for (queue = 0; queue < layout->nr_queues; queue++) {
		if (layout->tc[queue] < 0)
			continue;
		for_each_set_bit(id, xps_row(layout, queue), layout->nr_ids) {
			u32 slot = map->slots[layout->tc[queue] * map->nr_ids +
					      id];
			u32 *list;

			if (!(slot & XPS_LIST))
				continue;
			list = &map->slots[slot & ~XPS_LIST];
			if (!list[0] || list[list[0]] != queue)
				list[++list[0]] = queue;
		}
		cond_resched();
	}
}

/**
 * xps_map_build - compute a map
 * @layout: ids, classes, queues and masks
 *
 * Context: process context, may sleep.
 * Return: the map, to be freed with kvfree(); %NULL when no slot has a queue;
 * ERR_PTR(-ENOMEM).
 */
struct xps_map *xps_map_build(const struct xps_layout *layout)
{
	u32 nr_slots = layout->nr_ids * layout->num_tc;
	struct xps_map *map = ERR_PTR(-ENOMEM);
	struct xps_sets sets = { .nr = 1 };
	u32 words, i;

	sets.set = xps_alloc(nr_slots + 2, sizeof(*sets.set));
	sets.of_slot = xps_alloc(nr_slots, sizeof(*sets.of_slot));
	if (!sets.set || !sets.of_slot)
		goto out;

	sets.set[0].members = nr_slots;
	xps_sort(&sets, layout);
	if (sets.set[0].members == nr_slots) {
		map = NULL;
		goto out;
	}

	words = xps_place_lists(&sets, nr_slots);
	map = xps_alloc(1, struct_size(map, slots, words));
	if (!map) {
		map = ERR_PTR(-ENOMEM);
		goto out;
	}

	map->nr_ids = layout->nr_ids;
	map->num_tc = layout->num_tc;
	for (i = 0; i < nr_slots; i++)
		map->slots[i] = xps_slot(&sets.set[sets.of_slot[i]]);
	xps_fill_lists(map, layout);
out:
	kvfree(sets.of_slot);
	kvfree(sets.set);
	return map;
}
EXPORT_SYMBOL_IF_KUNIT(xps_map_build);

/**
 * xps_mask_node - the memory node of a queue
 * @mask: CPUs that the queue serves
 * @nr_cpus: number of bits in @mask
 * @node_of: gives a CPU's node, or NUMA_NO_NODE
 *
 * Context: any.
 * Return: the node of all those CPUs in @mask that have one, NUMA_NO_NODE where
 * they differ or none has.
 */
int xps_mask_node(const unsigned long *mask, unsigned int nr_cpus,
		  int (*node_of)(int cpu))
{
	int node = NUMA_NO_NODE;
	unsigned int cpu;

	for_each_set_bit(cpu, mask, nr_cpus) {
		int its = node_of(cpu);

		if (its == NUMA_NO_NODE)
			continue;
		if (node != NUMA_NO_NODE && its != node)
			return NUMA_NO_NODE;
		node = its;
	}
	return node;
}
EXPORT_SYMBOL_IF_KUNIT(xps_mask_node);
