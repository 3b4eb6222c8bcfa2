/* SPDX-License-Identifier: GPL-2.0 */
/* XPS, transmit packet steering: the map and its lookup */
#ifndef _NET_XPS_H
#define _NET_XPS_H

#include <linux/kernel.h>
#include <linux/netdevice.h>
#include <linux/rcupdate.h>
#include <linux/skbuff.h>
#include <net/sock.h>

/**
 * DOC: XPS
 *
 * A device with several transmit queues must choose one for each packet. XPS,
 * transmit packet steering, lets the sending CPU decide: each queue has a mask
 * of the CPUs that it serves. CPUs that have queues of their own don't contend
 * for locks, and the interrupt that reports a sent packet can go to the CPU
 * whose caches hold it. A second mask for each queue names receive queues: an
 * answer then leaves by the queue that belongs to the one its question came in
 * by, whichever CPU sends it.
 *
 * Two things are kept apart. The *configuration* is what was asked for: a mask
 * for each queue and map type, written through sysfs or by the driver, changed
 * under a mutex, and what the files read back. The *map* is what the transmit
 * path reads: one flat, immutable object for each map type, computed from the
 * configuration and from the number of queues and traffic classes in use now,
 * and replaced under RCU. A sender sees the whole old map or the whole new
 * one. A mask on a queue that isn't in use now stays in the configuration and
 * returns to the map when the queue does.
 *
 * In the map each pair of traffic class and CPU (or receive queue) has a slot
 * of 32 bits that holds the queue itself when there is one. So a lookup is two
 * dependent loads, of the map's address and of the slot. Where a CPU has more
 * than one queue the slot names a list, and the packet's flow hash picks one
 * from it; equal lists are stored once. The slots of 4096 CPUs and 16 traffic
 * classes take 256 KiB, of 64 CPUs without classes 256 bytes.
 */

/* A slot: a queue number, XPS_NO_QUEUE, or XPS_LIST with a list's index. */
#define XPS_NO_QUEUE	0xffffU
#define XPS_LIST	BIT(31)

/**
 * struct xps_map - the queues of each CPU, or of each receive queue
 * @nr_ids: CPUs or receive queues covered, also those offline or unused
 * @num_tc: traffic classes covered; 1 on a device without classes
 * @slots: a slot for each class and id, at class * @nr_ids + id; behind them
 *	the lists, each of which is its length followed by its queues, ascending
 *
 * Never changes once it is published in net_device::xps_maps.
 */
struct xps_map {
	u32	nr_ids;
	u32	num_tc;
	u32	slots[];
};

#ifdef CONFIG_XPS

/* With one class neither the priority nor @nr_ids is needed to find the slot,
 * so the slot's load waits for nothing but the map's address.
 */
static inline u32 xps_map_pick(const struct xps_map *map,
			       const struct net_device *dev,
			       struct sk_buff *skb, u32 id)
{
	const u32 *list;
	u32 slot = id;

	if (unlikely(id >= map->nr_ids))
		return XPS_NO_QUEUE;

	if (map->num_tc > 1) {
		u32 tc = netdev_get_prio_tc_map(dev, skb->priority);

		if (unlikely(tc >= map->num_tc))
			return XPS_NO_QUEUE;
		slot += tc * map->nr_ids;
	}

	slot = map->slots[slot];
	if (likely(!(slot & XPS_LIST)))
		return slot;

	list = &map->slots[slot & ~XPS_LIST];
	return list[1 + reciprocal_scale(skb_get_hash(skb), list[0])];
}

/**
 * xps_pick_queue - the transmit queue that XPS wants for a packet
 * @dev: device that sends
 * @sb_dev: @dev, or the subordinate device on whose behalf it sends
 * @skb: packet
 *
 * The map of receive queues comes first, as it speaks for a flow; packets that
 * it says nothing about follow the sending CPU.
 *
 * Context: softirq or process context; takes the RCU read lock.
 * Return: a queue below @dev's real_num_tx_queues, or -1 when XPS has no wish.
 */
static inline int xps_pick_queue(const struct net_device *dev,
				 const struct net_device *sb_dev,
				 struct sk_buff *skb)
{
	u32 nr_queues = READ_ONCE(dev->real_num_tx_queues);
	const struct xps_map *map;
	u32 queue = XPS_NO_QUEUE;

	rcu_read_lock();

	map = rcu_dereference(sb_dev->xps_maps[XPS_RXQS]);
	if (unlikely(map))
		queue = xps_map_pick(map, dev, skb, sk_rx_queue_get(skb->sk));

	if (likely(queue >= nr_queues)) {
		map = rcu_dereference(sb_dev->xps_maps[XPS_CPUS]);
		if (map)
			queue = xps_map_pick(map, dev, skb,
					     skb->sender_cpu - 1);
	}

	rcu_read_unlock();

	return queue < nr_queues ? queue : -1;
}

void xps_unpublish(struct net_device *dev);
void xps_update(struct net_device *dev);
void xps_free(struct net_device *dev);

#else /* CONFIG_XPS */

static inline int xps_pick_queue(const struct net_device *dev,
				 const struct net_device *sb_dev,
				 struct sk_buff *skb)
{
	return -1;
}

static inline void xps_unpublish(struct net_device *dev)
{
}

static inline void xps_update(struct net_device *dev)
{
}

static inline void xps_free(struct net_device *dev)
{
}

#endif /* CONFIG_XPS */
#endif /* _NET_XPS_H */
