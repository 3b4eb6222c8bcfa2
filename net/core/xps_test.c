// SPDX-License-Identifier: GPL-2.0
/* XPS: tests of the map's builder, its lookup, and of what changes it.
 *
 * The builder is compared with an oracle that looks at one bit after the other.
 * Random cases come from a fixed seed and say their number when they fail.
 */
#include <kunit/resource.h>
#include <kunit/static_stub.h>
#include <kunit/test.h>
#include <linux/bitmap.h>
#include <linux/cpumask.h>
#include <linux/etherdevice.h>
#include <linux/prandom.h>
#include <linux/skbuff.h>
#include <net/busy_poll.h>
#include <net/xps.h>

#include "xps.h"

#define SMALL_CASES	500

/* Fails one allocation, and remembers how large the last good one was. */
static struct {
	int	fail_at;
	int	count;
	size_t	last;
} allocs;

static void *xps_alloc_counted(size_t n, size_t size)
{
	if (++allocs.count == allocs.fail_at)
		return NULL;

	allocs.last = n * size;
	return kvcalloc(n, size, GFP_KERNEL);
}

static void count_allocs(struct kunit *test, int fail_at)
{
	allocs.count = 0;
	allocs.fail_at = fail_at;
	kunit_activate_static_stub(test, xps_alloc, xps_alloc_counted);
}

KUNIT_DEFINE_ACTION_WRAPPER(kvfree_action, kvfree, const void *);

static void *zalloc(struct kunit *test, size_t n, size_t size)
{
	void *p = kvcalloc(n, size, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, p);
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, kvfree_action, p),
			0);
	return p;
}

/* --- builder --- */

enum pattern { ONE_HOT, BLOCKS, SPARSE, DENSE, ALL, NR_PATTERNS };

static void fill_masks(struct rnd_state *rnd, struct xps_layout *layout,
		       unsigned long *masks, enum pattern pattern)
{
	unsigned int words = BITS_TO_LONGS(layout->nr_ids);
	unsigned int q, id;

	bitmap_zero(masks, layout->nr_queues * words * BITS_PER_LONG);
	for (q = 0; q < layout->nr_queues; q++, masks += words) {
		for (id = 0; id < layout->nr_ids; id++) {
			u32 r = prandom_u32_state(rnd);
			bool set = false;

			switch (pattern) {
			case ONE_HOT:
				set = id % layout->nr_queues == q;
				break;
			case BLOCKS:
				set = id / 8 % layout->nr_queues == q / 2;
				break;
			case SPARSE:
				set = r % layout->nr_ids < 4;
				break;
			case DENSE:
				set = r & 1;
				break;
			case ALL:
			case NR_PATTERNS:
				set = true;
				break;
			}
			if (set)
				__set_bit(id, masks);
		}
	}
}

static void make_layout(struct kunit *test, struct rnd_state *rnd,
			struct xps_layout *layout, enum pattern pattern)
{
	size_t words = BITS_TO_LONGS(layout->nr_ids);
	unsigned long *masks;
	unsigned int q;
	s8 *tc;

	masks = zalloc(test, layout->nr_queues * words, sizeof(*masks));
	tc = zalloc(test, layout->nr_queues, sizeof(*tc));

	/* Classes in no order; now and then a queue that is in none. */
	for (q = 0; q < layout->nr_queues; q++)
		tc[q] = (int)(prandom_u32_state(rnd) % (layout->num_tc * 8 + 1)) / 8;
	for (q = 0; q < layout->nr_queues; q++)
		if (tc[q] == layout->num_tc)
			tc[q] = -1;
	fill_masks(rnd, layout, masks, pattern);
	layout->masks = masks;
	layout->tc = tc;
}

/* The oracle: what a slot must hold, in @list. Returns its length. */
static u32 expected(const struct xps_layout *layout, u32 tc, u32 id, u32 *list)
{
	u32 q, len = 0;

	for (q = 0; q < layout->nr_queues; q++)
		if (layout->tc[q] == (int)tc &&
		    test_bit(id, layout->masks +
				 q * BITS_TO_LONGS(layout->nr_ids)))
			list[len++] = q;
	return len;
}

static bool slot_is(const struct xps_map *map, u32 slot, const u32 *list,
		    u32 len)
{
	const u32 *in_map;

	if (!len)
		return slot == XPS_NO_QUEUE;
	if (len == 1)
		return slot == list[0];
	if (!(slot & XPS_LIST))
		return false;

	in_map = &map->slots[slot & ~XPS_LIST];
	return in_map[0] == len && !memcmp(in_map + 1, list, len * sizeof(u32));
}

/* Checks each slot; returns how many words the map may have if each list that
 * a slot has not shown before adds its own.
 */
static size_t check_slots(struct kunit *test, const struct xps_layout *layout,
			  const struct xps_map *map, const char *what)
{
	u32 nr_slots = layout->nr_ids * layout->num_tc;
	size_t words = nr_slots;
	u32 tc, id, *list;
	unsigned long *seen;

	list = zalloc(test, layout->nr_queues, sizeof(*list));
	seen = zalloc(test, BITS_TO_LONGS(allocs.last), sizeof(*seen));
	KUNIT_ASSERT_EQ_MSG(test, map->nr_ids, layout->nr_ids, "%s", what);
	KUNIT_ASSERT_EQ_MSG(test, map->num_tc, layout->num_tc, "%s", what);

	for (tc = 0; tc < layout->num_tc; tc++)
		for (id = 0; id < layout->nr_ids; id++) {
			u32 slot = map->slots[tc * layout->nr_ids + id];
			u32 len = expected(layout, tc, id, list);

			KUNIT_ASSERT_TRUE_MSG(test,
					      slot_is(map, slot, list, len),
					      "%s: class %u, id %u: slot %#x",
					      what, tc, id, slot);
			if (len > 1 &&
			    !__test_and_set_bit(slot & ~XPS_LIST, seen))
				words += 1 + len;
		}

	return words;
}

/* Slots that have equal lists must name the same one. */
static void check_shared(struct kunit *test, const struct xps_map *map,
			 const char *what)
{
	u32 nr_slots = map->nr_ids * map->num_tc;
	u32 i, j;

	for (i = 0; i < nr_slots; i++) {
		u32 a = map->slots[i];
		const u32 *list = &map->slots[a & ~XPS_LIST];

		for (j = i + 1; a & XPS_LIST && j < nr_slots; j++)
			if (map->slots[j] & XPS_LIST &&
			    slot_is(map, map->slots[j], list + 1, list[0]))
				KUNIT_ASSERT_EQ_MSG(test, a, map->slots[j],
						    "%s: list twice", what);
	}
}

static bool has_bits(const struct xps_layout *layout)
{
	u32 words = BITS_TO_LONGS(layout->nr_ids);
	u32 q;

	for (q = 0; q < layout->nr_queues; q++)
		if (layout->tc[q] >= 0 &&
		    !bitmap_empty(layout->masks + q * words, layout->nr_ids))
			return true;
	return false;
}

static void check_build(struct kunit *test, const struct xps_layout *layout,
			bool shared, const char *what)
{
	struct xps_map *map;
	size_t words;

	count_allocs(test, 0);
	map = xps_map_build(layout);
	KUNIT_ASSERT_FALSE_MSG(test, IS_ERR(map), "%s", what);
	KUNIT_ASSERT_EQ_MSG(test, !!map, has_bits(layout), "%s", what);
	if (!map)
		return;

	words = check_slots(test, layout, map, what);
	KUNIT_EXPECT_EQ_MSG(test, allocs.last, struct_size(map, slots, words),
			    "%s: size of the map", what);
	if (shared)
		check_shared(test, map, what);
	kvfree(map);
}

static void xps_build_random(struct kunit *test)
{
	struct xps_layout layout;
	struct rnd_state rnd;
	char what[32];
	int i;

	prandom_seed_state(&rnd, 20261130);
	for (i = 0; i < SMALL_CASES; i++) {
		enum pattern pattern = prandom_u32_state(&rnd) % NR_PATTERNS;

		layout.nr_ids = 1 + prandom_u32_state(&rnd) % 130;
		layout.num_tc = 1 + prandom_u32_state(&rnd) % 4;
		layout.nr_queues = 1 + prandom_u32_state(&rnd) % 20;
		make_layout(test, &rnd, &layout, pattern);
		snprintf(what, sizeof(what), "case %d", i);
		check_build(test, &layout, true, what);
	}
}

static void xps_build_full_size(struct kunit *test)
{
	static const enum pattern patterns[] = { ONE_HOT, SPARSE, ALL };
	struct xps_layout layout = {
		.nr_ids = 4096,
		.num_tc = 16,
		.nr_queues = 1024,
	};
	struct rnd_state rnd;
	int i;

	if (IS_ENABLED(CONFIG_PROVE_LOCKING))
		kunit_skip(test, "slow on a kernel that checks locks");

	prandom_seed_state(&rnd, 4096);
	for (i = 0; i < ARRAY_SIZE(patterns); i++) {
		make_layout(test, &rnd, &layout, patterns[i]);
		check_build(test, &layout, false, "full size");
	}
}

static void xps_build_empty(struct kunit *test)
{
	static const unsigned long masks[] = { 0, 0, 0xf };
	static const s8 tc[] = { 0, 1, -1 };
	struct xps_layout layout = {
		.nr_ids = 4, .num_tc = 2, .nr_queues = 3,
		.tc = tc, .masks = masks,
	};

	KUNIT_EXPECT_NULL(test, xps_map_build(&layout));
}

/* Eight CPUs on the same two queues, one more on three: two lists in all. */
static void xps_build_stores_lists_once(struct kunit *test)
{
	static const unsigned long masks[] = { 0x1ff, 0x1ff, 0x100 };
	static const s8 tc[] = { 0, 0, 0 };
	struct xps_layout layout = {
		.nr_ids = 16, .num_tc = 1, .nr_queues = 3,
		.tc = tc, .masks = masks,
	};
	struct xps_map *map;

	count_allocs(test, 0);
	map = xps_map_build(&layout);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, map);
	KUNIT_EXPECT_EQ(test, allocs.last,
			struct_size(map, slots, 16 + (1 + 2) + (1 + 3)));
	KUNIT_EXPECT_EQ(test, map->slots[0], map->slots[7]);
	KUNIT_EXPECT_NE(test, map->slots[0], map->slots[8]);
	KUNIT_EXPECT_EQ(test, map->slots[9], XPS_NO_QUEUE);
	kvfree(map);
}

static void xps_build_no_memory(struct kunit *test)
{
	static const unsigned long masks[] = { 0x3, 0x3 };
	static const s8 tc[] = { 0, 0 };
	struct xps_layout layout = {
		.nr_ids = 4, .num_tc = 1, .nr_queues = 2,
		.tc = tc, .masks = masks,
	};
	struct xps_map *map;
	int fail_at = 0;

	do {
		count_allocs(test, ++fail_at);
		map = xps_map_build(&layout);
		if (allocs.count < fail_at)
			break;
		KUNIT_EXPECT_PTR_EQ(test, map, ERR_PTR(-ENOMEM));
	} while (fail_at < 10);

	KUNIT_EXPECT_EQ(test, fail_at, 4);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, map);
	kvfree(map);
}

static int four_cpus_a_node(int cpu)
{
	return cpu / 4;
}

static int nodes_for_some(int cpu)
{
	return cpu & 1 ? 3 : NUMA_NO_NODE;
}

static void xps_node_of_mask(struct kunit *test)
{
	unsigned long mask[BITS_TO_LONGS(128)] = {};

	KUNIT_EXPECT_EQ(test, xps_mask_node(mask, 128, four_cpus_a_node),
			NUMA_NO_NODE);
	bitmap_set(mask, 100, 4);
	KUNIT_EXPECT_EQ(test, xps_mask_node(mask, 128, four_cpus_a_node), 25);
	KUNIT_EXPECT_EQ(test, xps_mask_node(mask, 100, four_cpus_a_node),
			NUMA_NO_NODE);
	__set_bit(3, mask);
	KUNIT_EXPECT_EQ(test, xps_mask_node(mask, 128, four_cpus_a_node),
			NUMA_NO_NODE);
	bitmap_clear(mask, 100, 4);
	KUNIT_EXPECT_EQ(test, xps_mask_node(mask, 128, four_cpus_a_node), 0);

	/* CPUs without a node say nothing, whether they come first or last. */
	KUNIT_EXPECT_EQ(test, xps_mask_node(mask, 128, nodes_for_some), 3);
	__set_bit(2, mask);
	KUNIT_EXPECT_EQ(test, xps_mask_node(mask, 128, nodes_for_some), 3);
	__set_bit(4, mask);
	KUNIT_EXPECT_EQ(test, xps_mask_node(mask, 128, nodes_for_some), 3);
}

/* --- devices: never registered, so no lock is needed --- */

KUNIT_DEFINE_ACTION_WRAPPER(free_netdev_action, free_netdev,
			    struct net_device *);
KUNIT_DEFINE_ACTION_WRAPPER(kfree_skb_action, kfree_skb, struct sk_buff *);

static struct net_device *make_dev(struct kunit *test, unsigned int queues)
{
	struct net_device *dev;

	dev = alloc_netdev_mqs(0, "xps%d", NET_NAME_UNKNOWN, ether_setup,
			       queues, queues);
	KUNIT_ASSERT_NOT_NULL(test, dev);
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test,
							free_netdev_action,
							dev), 0);
	return dev;
}

static struct sk_buff *make_skb(struct kunit *test)
{
	struct sk_buff *skb = alloc_skb(64, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, skb);
	KUNIT_ASSERT_EQ(test, kunit_add_action_or_reset(test, kfree_skb_action,
							skb), 0);
	skb_set_hash(skb, 1, PKT_HASH_TYPE_L4);
	return skb;
}

static int set_cpus(struct net_device *dev, u16 queue, unsigned long cpus)
{
	static struct cpumask mask;

	cpumask_clear(&mask);
	*cpumask_bits(&mask) = cpus;
	return netif_set_xps_queue(dev, &mask, queue);
}

static unsigned long get_cpus(struct net_device *dev, u16 queue)
{
	static struct cpumask mask;

	xps_get_mask(dev, queue, XPS_CPUS, cpumask_bits(&mask));
	return *cpumask_bits(&mask);
}

static int pick(struct net_device *dev, struct sk_buff *skb, unsigned int cpu)
{
	skb->sender_cpu = cpu + 1;
	return xps_pick_queue(dev, dev, skb);
}

static const struct xps_map *cpu_map(struct net_device *dev)
{
	return rcu_access_pointer(dev->xps_maps[XPS_CPUS]);
}

/* A device with four queues, of which queue n serves CPU n. */
static struct net_device *make_one_hot(struct kunit *test)
{
	struct net_device *dev = make_dev(test, 4);
	int cpu;

	if (nr_cpu_ids < 4)
		kunit_skip(test, "needs four CPUs");

	for (cpu = 0; cpu < 4; cpu++)
		KUNIT_ASSERT_EQ(test, set_cpus(dev, cpu, BIT(cpu)), 0);
	return dev;
}

static void xps_pick_one_queue(struct kunit *test)
{
	struct net_device *dev = make_one_hot(test);
	struct sk_buff *skb = make_skb(test);
	int cpu;

	for (cpu = 0; cpu < 4; cpu++)
		KUNIT_EXPECT_EQ(test, pick(dev, skb, cpu), cpu);

	KUNIT_EXPECT_EQ(test, set_cpus(dev, 2, 0), 0);
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 2), -1);
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 3), 3);

	/* Neither "not known" nor a NAPI id is a CPU. */
	KUNIT_EXPECT_EQ(test, pick(dev, skb, -1), -1);
	KUNIT_EXPECT_EQ(test, pick(dev, skb, nr_cpu_ids), -1);
	KUNIT_EXPECT_EQ(test, pick(dev, skb, MIN_NAPI_ID), -1);
}

static void xps_pick_from_list(struct kunit *test)
{
	struct net_device *dev = make_dev(test, 4);
	struct sk_buff *skb = make_skb(test);
	int picked[4] = {};
	struct rnd_state rnd;
	int i;

	prandom_seed_state(&rnd, 3);
	KUNIT_ASSERT_EQ(test, set_cpus(dev, 1, 1), 0);
	KUNIT_ASSERT_EQ(test, set_cpus(dev, 3, 1), 0);

	for (i = 0; i < 1000; i++) {
		int queue;

		skb_set_hash(skb, prandom_u32_state(&rnd), PKT_HASH_TYPE_L4);
		queue = pick(dev, skb, 0);
		KUNIT_ASSERT_TRUE(test, queue == 1 || queue == 3);
		KUNIT_ASSERT_EQ(test, pick(dev, skb, 0), queue);
		picked[queue]++;
	}
	KUNIT_EXPECT_GT(test, picked[1], 400);
	KUNIT_EXPECT_GT(test, picked[3], 400);
}

static void xps_pick_rxq_first(struct kunit *test)
{
	struct net_device *dev = make_one_hot(test);
	struct sk_buff *skb = make_skb(test);
	unsigned long rxqs = BIT(3);
	struct sock *sk;

	sk = kunit_kzalloc(test, sizeof(*sk), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, sk);
	KUNIT_ASSERT_EQ(test, __netif_set_xps_queue(dev, &rxqs, 1, XPS_RXQS),
			0);

	KUNIT_EXPECT_EQ(test, pick(dev, skb, 0), 0);
	skb->sk = sk;
	sk->sk_rx_queue_mapping = 3;
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 0), 1);
	sk->sk_rx_queue_mapping = 2;
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 0), 0);
	sk->sk_rx_queue_mapping = 4;
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 0), 0);
	sk->sk_rx_queue_mapping = NO_QUEUE_MAPPING;
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 0), 0);
	skb->sk = NULL;

	rxqs = 0;
	KUNIT_EXPECT_EQ(test, __netif_set_xps_queue(dev, &rxqs, 1, XPS_RXQS),
			0);
	KUNIT_EXPECT_NULL(test, rcu_access_pointer(dev->xps_maps[XPS_RXQS]));
}

static void xps_queues_in_use(struct kunit *test)
{
	struct net_device *dev = make_one_hot(test);
	struct sk_buff *skb = make_skb(test);
	int cpu;

	KUNIT_ASSERT_EQ(test, netif_set_real_num_tx_queues(dev, 2), 0);
	for (cpu = 0; cpu < 4; cpu++)
		KUNIT_EXPECT_EQ(test, pick(dev, skb, cpu), cpu < 2 ? cpu : -1);

	/* The mask of a queue that isn't in use can be set, and waits. */
	KUNIT_EXPECT_EQ(test, set_cpus(dev, 3, 0x1), 0);
	KUNIT_EXPECT_EQ(test, get_cpus(dev, 2), 0x4);
	KUNIT_EXPECT_EQ(test, get_cpus(dev, 3), 0x1);
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 0), 0);

	KUNIT_ASSERT_EQ(test, set_cpus(dev, 0, 0), 0);
	KUNIT_ASSERT_EQ(test, netif_set_real_num_tx_queues(dev, 4), 0);
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 0), 3);
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 2), 2);
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 3), -1);
}

/* No memory when queues go away: the old map is there, but not those queues. */
static void xps_queues_gone_no_memory(struct kunit *test)
{
	struct net_device *dev = make_one_hot(test);
	const struct xps_map *old = cpu_map(dev);
	struct sk_buff *skb = make_skb(test);

	count_allocs(test, 1);
	KUNIT_ASSERT_EQ(test, netif_set_real_num_tx_queues(dev, 2), 0);
	kunit_deactivate_static_stub(test, xps_alloc);

	KUNIT_EXPECT_PTR_EQ(test, cpu_map(dev), old);
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 1), 1);
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 2), -1);
	KUNIT_EXPECT_EQ(test, get_cpus(dev, 2), 0x4);

	/* Any later write mends it. */
	KUNIT_EXPECT_EQ(test, set_cpus(dev, 0, 0x1), 0);
	KUNIT_EXPECT_PTR_NE(test, cpu_map(dev), old);
}

static void xps_set_no_memory(struct kunit *test)
{
	struct net_device *dev = make_dev(test, 4);
	const struct xps_map *old;
	int fail_at, err;

	/* First of all, with no configuration yet. */
	for (fail_at = 1, err = -ENOMEM; err; fail_at++) {
		KUNIT_ASSERT_LT(test, fail_at, 10);
		count_allocs(test, fail_at);
		err = set_cpus(dev, 0, 0x1);
		if (!err)
			break;
		KUNIT_EXPECT_EQ(test, err, -ENOMEM);
		KUNIT_EXPECT_NULL(test, cpu_map(dev));
		KUNIT_EXPECT_EQ(test, get_cpus(dev, 0), 0);
	}
	KUNIT_EXPECT_EQ(test, fail_at, 4);

	old = cpu_map(dev);
	KUNIT_ASSERT_NOT_NULL(test, old);
	for (fail_at = 1, err = -ENOMEM; err; fail_at++) {
		KUNIT_ASSERT_LT(test, fail_at, 10);
		count_allocs(test, fail_at);
		err = set_cpus(dev, 1, 0x1);
		if (!err)
			break;
		KUNIT_EXPECT_EQ(test, err, -ENOMEM);
		KUNIT_EXPECT_PTR_EQ(test, cpu_map(dev), old);
		KUNIT_EXPECT_EQ(test, get_cpus(dev, 0), 0x1);
		KUNIT_EXPECT_EQ(test, get_cpus(dev, 1), 0);
	}
	KUNIT_EXPECT_EQ(test, fail_at, 4);
}

static void xps_driver_errors(struct kunit *test)
{
	struct net_device *single = make_dev(test, 1);
	struct net_device *dev = make_dev(test, 4);

	KUNIT_EXPECT_EQ(test, set_cpus(single, 0, 0x1), 0);
	KUNIT_EXPECT_NULL(test, cpu_map(single));
	KUNIT_EXPECT_EQ(test, get_cpus(single, 0), 0);

	kunit_warning_suppress(test) {
		KUNIT_EXPECT_EQ(test, set_cpus(dev, 4, 0x1), -EINVAL);
		KUNIT_EXPECT_SUPPRESSED_WARNING_COUNT(test, 1);
	}
	KUNIT_EXPECT_NULL(test, cpu_map(dev));

	KUNIT_ASSERT_EQ(test, netdev_set_sb_channel(single, 1), 0);
	KUNIT_EXPECT_EQ(test, set_cpus(single, 0, 0x1), -EINVAL);
}

/* Two classes of two queues: every CPU has a queue in each. */
static void make_classes(struct kunit *test, struct net_device *dev)
{
	KUNIT_ASSERT_EQ(test, netdev_set_num_tc(dev, 2), 0);
	KUNIT_ASSERT_EQ(test, netdev_set_tc_queue(dev, 0, 2, 0), 0);
	KUNIT_ASSERT_EQ(test, netdev_set_tc_queue(dev, 1, 2, 2), 0);
	KUNIT_ASSERT_EQ(test, netdev_set_prio_tc_map(dev, 5, 1), 0);
}

static void xps_classes(struct kunit *test)
{
	struct net_device *dev = make_one_hot(test);
	struct sk_buff *skb = make_skb(test);
	static const unsigned long cpus[] = { 0x3, 0xc, 0x5, 0xa };
	static const int want[2][4] = { { 0, 0, 1, 1 }, { 2, 3, 2, 3 } };
	int cpu, tc, q;

	make_classes(test, dev);
	for (q = 0; q < 4; q++)
		KUNIT_ASSERT_EQ(test, set_cpus(dev, q, cpus[q]), 0);

	for (tc = 0; tc < 2; tc++)
		for (cpu = 0; cpu < 4; cpu++) {
			skb->priority = tc ? 5 : 0;
			KUNIT_EXPECT_EQ(test, pick(dev, skb, cpu),
					want[tc][cpu]);
		}

	/* A class that the map doesn't know has no queue in it. */
	dev->prio_tc_map[7] = 2;
	skb->priority = 7;
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 0), -1);

	/* Without classes the priority says nothing, and no mask was lost. */
	netdev_reset_tc(dev);
	for (q = 0; q < 4; q++)
		KUNIT_EXPECT_EQ(test, get_cpus(dev, q), cpus[q]);
	for (cpu = 0; cpu < 4; cpu++) {
		q = pick(dev, skb, cpu);
		KUNIT_EXPECT_TRUE(test, q == want[0][cpu] || q == want[1][cpu]);
	}
}

/* Each change of a class withdraws the map first: when the new one can't be
 * built, there is none.
 */
static void xps_classes_withdraw(struct kunit *test)
{
	struct net_device *dev = make_one_hot(test);
	struct net_device *sb = make_dev(test, 1);
	int step;

	KUNIT_ASSERT_EQ(test, netdev_set_sb_channel(sb, 1), 0);
	for (step = 0; step < 5; step++) {
		count_allocs(test, 0);
		make_classes(test, dev);
		KUNIT_ASSERT_NOT_NULL(test, cpu_map(dev));

		count_allocs(test, 1);
		switch (step) {
		case 0:
			netdev_set_tc_queue(dev, 1, 1, 2);
			break;
		case 1:
			netdev_set_num_tc(dev, 1);
			break;
		case 2:
			netdev_reset_tc(dev);
			break;
		case 3:
			netdev_bind_sb_channel_queue(dev, sb, 1, 1, 3);
			break;
		case 4:
			netdev_bind_sb_channel_queue(dev, sb, 1, 1, 3);
			count_allocs(test, 0);
			xps_update(dev);
			KUNIT_ASSERT_NOT_NULL(test, cpu_map(sb));
			count_allocs(test, 1);
			netdev_unbind_sb_channel(dev, sb);
			KUNIT_EXPECT_NULL(test, cpu_map(sb));
			break;
		}
		KUNIT_EXPECT_NULL_MSG(test, cpu_map(dev), "step %d", step);
		KUNIT_EXPECT_EQ(test, get_cpus(dev, 3), 0x8);
	}
}

static void xps_node_follows_mask(struct kunit *test)
{
	struct net_device *single = make_dev(test, 1);
	struct net_device *dev = make_one_hot(test);

	if (!IS_ENABLED(CONFIG_NUMA))
		kunit_skip(test, "needs CONFIG_NUMA");

	KUNIT_ASSERT_EQ(test, set_cpus(single, 0, BIT(1)), 0);
	KUNIT_EXPECT_EQ(test, netdev_queue_numa_node_read(single->_tx),
			cpu_to_node(1));
	KUNIT_EXPECT_EQ(test, netdev_queue_numa_node_read(dev->_tx + 3),
			cpu_to_node(3));
	KUNIT_ASSERT_EQ(test, set_cpus(dev, 3, 0), 0);
	KUNIT_EXPECT_EQ(test, netdev_queue_numa_node_read(dev->_tx + 3),
			NUMA_NO_NODE);
}

static void xps_unpublish_keeps_masks(struct kunit *test)
{
	struct net_device *dev = make_one_hot(test);
	struct sk_buff *skb = make_skb(test);

	xps_unpublish(dev);
	KUNIT_EXPECT_NULL(test, cpu_map(dev));
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 1), -1);
	KUNIT_EXPECT_EQ(test, get_cpus(dev, 1), 0x2);

	xps_update(dev);
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 1), 1);
}

/* A subordinate device sends on queue 3 of its parent, in class 1. */
static void xps_subordinate(struct kunit *test)
{
	struct net_device *dev = make_one_hot(test);
	struct net_device *sb = make_dev(test, 1);
	struct sk_buff *skb = make_skb(test);

	make_classes(test, dev);
	KUNIT_ASSERT_EQ(test, netdev_set_sb_channel(sb, 1), 0);
	KUNIT_ASSERT_EQ(test, netdev_bind_sb_channel_queue(dev, sb, 1, 1, 3),
			0);
	KUNIT_ASSERT_NOT_NULL(test, cpu_map(sb));

	skb->priority = 5;
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 3), -1);
	KUNIT_EXPECT_EQ(test, xps_pick_queue(dev, sb, skb), 3);

	/* Its queue's mask is written by the parent's file. */
	KUNIT_EXPECT_EQ(test, set_cpus(dev, 3, 0x1), 0);
	KUNIT_EXPECT_EQ(test, xps_pick_queue(dev, sb, skb), -1);
	skb->sender_cpu = 1;
	KUNIT_EXPECT_EQ(test, xps_pick_queue(dev, sb, skb), 3);

	netdev_unbind_sb_channel(dev, sb);
	KUNIT_EXPECT_NULL(test, cpu_map(sb));
	KUNIT_EXPECT_EQ(test, pick(dev, skb, 0), 3);
}

static struct kunit_case xps_test_cases[] = {
	KUNIT_CASE(xps_build_random),
	KUNIT_CASE_SLOW(xps_build_full_size),
	KUNIT_CASE(xps_build_empty),
	KUNIT_CASE(xps_build_stores_lists_once),
	KUNIT_CASE(xps_build_no_memory),
	KUNIT_CASE(xps_node_of_mask),
	KUNIT_CASE(xps_pick_one_queue),
	KUNIT_CASE(xps_pick_from_list),
	KUNIT_CASE(xps_pick_rxq_first),
	KUNIT_CASE(xps_queues_in_use),
	KUNIT_CASE(xps_queues_gone_no_memory),
	KUNIT_CASE(xps_set_no_memory),
	KUNIT_CASE(xps_driver_errors),
	KUNIT_CASE(xps_classes),
	KUNIT_CASE(xps_classes_withdraw),
	KUNIT_CASE(xps_node_follows_mask),
	KUNIT_CASE(xps_unpublish_keeps_masks),
	KUNIT_CASE(xps_subordinate),
	{}
};

static struct kunit_suite xps_test_suite = {
	.name = "xps",
	.test_cases = xps_test_cases,
};

kunit_test_suite(xps_test_suite);

MODULE_DESCRIPTION("KUnit tests for transmit packet steering");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS("EXPORTED_FOR_KUNIT_TESTING");
