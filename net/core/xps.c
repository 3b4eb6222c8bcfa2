// SPDX-License-Identifier: GPL-2.0
/* XPS: what was asked for, and when the maps are built from it.
 *
 * include/net/xps.h has the overview, xps_map.c turns masks into a map.
 *
 * Who writes:
 *  - net_device::xps_config, the masks of each map type: the sysfs files and
 *    drivers' calls. Allocated at the first one, kept until the device is
 *    freed: whatever happens to queues and classes, a mask isn't forgotten.
 *  - net_device::xps_maps: whoever changes a mask, and dev.c after the number
 *    of queues in use, a class or a subordinate device's queues changed.
 *    A subordinate device has maps, made from the masks of its queues, which
 *    are kept with the device that these belong to.
 *
 * Who reads: senders the maps, under RCU; the sysfs files the configuration.
 *
 * Locks, outermost first: RTNL, the netdev instance lock, cpus_read_lock(),
 * xps_mutex. xps_mutex alone protects what is written above. Drivers hold what
 * they like of the others, as they may call from CPU hotplug callbacks. Nothing
 * here depends on which CPUs are online, so none of it takes cpus_read_lock().
 *
 * Queues and classes change under RTNL or the instance lock, and dev.c then
 * calls xps_update(), always after the change. So a map built from numbers that
 * were just changing is soon replaced. With classes that's not good enough, as
 * a sender must not use a queue of another class: dev.c calls xps_unpublish()
 * before the change, and whoever could publish in between has to be kept out:
 * the sysfs files take RTNL and the instance lock, and a driver doesn't set
 * masks while it changes its classes.
 */
#include <linux/bitmap.h>
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/overflow.h>
#include <linux/topology.h>
#include <net/xps.h>
#include <kunit/visibility.h>

#include "xps.h"

static DEFINE_MUTEX(xps_mutex);

/**
 * struct xps_config - the masks that were asked for, of one map type
 * @nr_ids: number of bits in a mask
 * @nr_words: number of words in a mask
 * @tc: class of each queue, while a map is built
 * @masks: a mask for each queue that the device may have, and a spare one
 */
struct xps_config {
	unsigned int	nr_ids;
	unsigned int	nr_words;
	s8		*tc;
	unsigned long	masks[];
};

static unsigned long *xps_mask(struct xps_config *config, unsigned int index)
{
	return config->masks + index * config->nr_words;
}

/* Number of bits in the device's masks of this type. */
unsigned int xps_nr_ids(const struct net_device *dev, enum xps_map_type type)
{
	return type == XPS_CPUS ? nr_cpu_ids : dev->num_rx_queues;
}

static struct xps_config *xps_config_get(struct net_device *dev,
					 enum xps_map_type type)
{
	unsigned int nr_ids = xps_nr_ids(dev, type);
	unsigned int nr_words = BITS_TO_LONGS(nr_ids);
	size_t rows = dev->num_tx_queues + 1;
	struct xps_config *config;

	if (dev->xps_config[type])
		return dev->xps_config[type];

	config = xps_alloc(1, struct_size(config, masks, rows * nr_words) +
			      dev->num_tx_queues);
	if (!config)
		return NULL;

	config->nr_ids = nr_ids;
	config->nr_words = nr_words;
	config->tc = (s8 *)xps_mask(config, rows);
	dev->xps_config[type] = config;
	return config;
}

static struct net_device *xps_user(struct net_device *dev, unsigned int index)
{
	return READ_ONCE(netdev_get_tx_queue(dev, index)->sb_dev) ? : dev;
}

/* The class of a queue in the map of @user; negative: it isn't in that map. */
static int xps_queue_tc(struct net_device *dev, struct net_device *user,
			unsigned int index, int num_tc)
{
	int tc;

	if (index >= READ_ONCE(dev->real_num_tx_queues) ||
	    xps_user(dev, index) != user)
		return -1;

	tc = netdev_txq_to_tc(user, index);
	return tc < num_tc ? tc : -1;
}

static bool xps_replace(struct net_device *user, enum xps_map_type type,
			struct xps_map *map)
{
	map = rcu_replace_pointer(user->xps_maps[type], map,
				  lockdep_is_held(&xps_mutex));
	if (!map)
		return false;

	kvfree_rcu_mightsleep(map);
	return true;
}

/* Builds and publishes the map for @user, which is @dev or a subordinate of it;
 * on failure the old one stays.
 */
static int xps_publish(struct net_device *dev, struct net_device *user,
		       enum xps_map_type type)
{
	struct xps_config *config = dev->xps_config[type];
	int num_tc = max(READ_ONCE(dev->num_tc), 1);
	struct xps_layout layout = {
		.nr_ids = config->nr_ids,
		.num_tc = num_tc,
		.nr_queues = dev->num_tx_queues,
		.tc = config->tc,
		.masks = config->masks,
	};
	struct xps_map *map;
	unsigned int i;

	for (i = 0; i < layout.nr_queues; i++)
		config->tc[i] = xps_queue_tc(dev, user, i, num_tc);

	map = xps_map_build(&layout);
	if (IS_ERR(map))
		return PTR_ERR(map);

	xps_replace(user, type, map);
	return 0;
}

static bool xps_withdraw(struct net_device *dev, enum xps_map_type type)
{
	bool withdrawn = xps_replace(dev, type, NULL);
	unsigned int i;

	for (i = 0; i < dev->num_tx_queues; i++)
		withdrawn |= xps_replace(xps_user(dev, i), type, NULL);
	return withdrawn;
}

/**
 * xps_unpublish - withdraw a device's maps before its classes change
 * @dev: device
 *
 * The maps of subordinate devices on its queues go too. When this returns no
 * sender uses any of them; the masks stay. To be followed by xps_update().
 *
 * Context: process context, under RTNL or @dev's instance lock; may sleep.
 */
void xps_unpublish(struct net_device *dev)
{
	enum xps_map_type type;
	bool withdrawn = false;

	mutex_lock(&xps_mutex);
	for (type = 0; type < XPS_MAPS_MAX; type++)
		if (dev->xps_config[type])
			withdrawn |= xps_withdraw(dev, type);
	mutex_unlock(&xps_mutex);

	if (withdrawn)
		synchronize_net();
}
EXPORT_SYMBOL_IF_KUNIT(xps_unpublish);

static int xps_publish_all(struct net_device *dev, enum xps_map_type type)
{
	struct net_device *user, *last = dev;
	int err = xps_publish(dev, dev, type);
	unsigned int i;

	for (i = 0; i < dev->num_tx_queues; i++) {
		user = xps_user(dev, i);
		if (user != dev && user != last)
			err = xps_publish(dev, user, type) ? : err;
		last = user;
	}
	return err;
}

/**
 * xps_update - bring a device's maps up to date
 * @dev: device whose queues in use, classes or subordinate devices changed
 *
 * When memory runs out the old maps stay, unless they were withdrawn. Senders
 * check what they find there against the number of queues in use, and choose by
 * hash what they find nothing for.
 *
 * Context: process context, under RTNL or @dev's instance lock, or before @dev
 * is registered; may sleep.
 */
void xps_update(struct net_device *dev)
{
	enum xps_map_type type;
	int err = 0;

	mutex_lock(&xps_mutex);
	for (type = 0; type < XPS_MAPS_MAX; type++)
		if (dev->xps_config[type])
			err = xps_publish_all(dev, type) ? : err;
	mutex_unlock(&xps_mutex);

	if (err)
		netdev_warn(dev, "no memory for a transmit queue map; writing an xps mask builds it anew\n");
}
EXPORT_SYMBOL_IF_KUNIT(xps_update);

/**
 * xps_free - free a device's maps and masks
 * @dev: device that is about to be freed
 *
 * Context: process context; nothing else uses @dev any more.
 */
void xps_free(struct net_device *dev)
{
	enum xps_map_type type;

	for (type = 0; type < XPS_MAPS_MAX; type++) {
		kvfree(rcu_dereference_protected(dev->xps_maps[type], true));
		kvfree(dev->xps_config[type]);
	}
}

/* A mask may have CPUs that the machine can't. */
static int xps_node_of(int cpu)
{
	return cpu_possible(cpu) ? cpu_to_node(cpu) : NUMA_NO_NODE;
}

static void xps_set_node(struct net_device *dev, unsigned int index,
			 const unsigned long *cpus)
{
	int node = xps_mask_node(cpus, nr_cpu_ids, xps_node_of);

	netdev_queue_numa_node_write(netdev_get_tx_queue(dev, index), node);
}

/**
 * xps_set_mask - set the mask of a queue
 * @dev: device, with more than one queue
 * @index: queue, below @dev's num_tx_queues
 * @type: which mask
 * @mask: xps_nr_ids() bits
 *
 * Context: process context, may sleep; see the head of this file for locks.
 * Return: 0, or -ENOMEM, and then nothing has changed.
 */
int xps_set_mask(struct net_device *dev, unsigned int index,
		 enum xps_map_type type, const unsigned long *mask)
{
	unsigned long *row, *spare;
	struct xps_config *config;
	int err = -ENOMEM;

	mutex_lock(&xps_mutex);

	config = xps_config_get(dev, type);
	if (!config)
		goto unlock;

	row = xps_mask(config, index);
	spare = xps_mask(config, dev->num_tx_queues);
	bitmap_copy(spare, row, config->nr_ids);
	bitmap_copy(row, mask, config->nr_ids);

	err = xps_publish(dev, xps_user(dev, index), type);
	if (err)
		bitmap_copy(row, spare, config->nr_ids);
	else if (type == XPS_CPUS)
		xps_set_node(dev, index, row);
unlock:
	mutex_unlock(&xps_mutex);
	return err;
}

/**
 * xps_get_mask - copy the mask of a queue
 * @dev: device
 * @index: queue, below @dev's num_tx_queues
 * @type: which mask
 * @mask: where to, xps_nr_ids() bits
 *
 * Context: process context, may sleep.
 */
void xps_get_mask(struct net_device *dev, unsigned int index,
		  enum xps_map_type type, unsigned long *mask)
{
	struct xps_config *config;

	mutex_lock(&xps_mutex);
	config = dev->xps_config[type];
	if (config)
		bitmap_copy(mask, xps_mask(config, index), config->nr_ids);
	else
		bitmap_zero(mask, xps_nr_ids(dev, type));
	mutex_unlock(&xps_mutex);
}
EXPORT_SYMBOL_IF_KUNIT(xps_get_mask);

/**
 * __netif_set_xps_queue - a driver's mask for a queue, of CPUs or rx queues
 * @dev: device
 * @mask: nr_cpu_ids or @dev's num_rx_queues bits; empty: none
 * @index: queue, below @dev's num_tx_queues; one that isn't in use yet, or is
 *	in no traffic class, keeps its mask until it is
 * @type: %XPS_CPUS or %XPS_RXQS
 *
 * On a device with a single queue there is nothing to choose: just the queue's
 * memory node follows.
 *
 * Context: process context, may sleep. Any lock down to cpus_read_lock() may
 * be held. A driver that has traffic classes or lends queues to subordinate
 * devices holds what it holds to change those; others need hold none.
 * Return: 0; -EINVAL for a queue that @dev can't have, or when @dev is
 * subordinate to another; -ENOMEM. On error nothing has changed.
 */
int __netif_set_xps_queue(struct net_device *dev, const unsigned long *mask,
			  u16 index, enum xps_map_type type)
{
	if (WARN_ON_ONCE(index >= dev->num_tx_queues))
		return -EINVAL;
	if (READ_ONCE(dev->num_tc) < 0)
		return -EINVAL;
	if (netif_is_multiqueue(dev))
		return xps_set_mask(dev, index, type, mask);

	if (type == XPS_CPUS)
		xps_set_node(dev, index, mask);
	return 0;
}
EXPORT_SYMBOL_GPL(__netif_set_xps_queue);

/**
 * netif_set_xps_queue - a driver's mask of CPUs for a queue
 * @dev: device
 * @mask: CPUs that shall send on the queue, online or not; empty: none
 * @index: queue, below @dev's num_tx_queues
 *
 * Context: as __netif_set_xps_queue().
 * Return: as __netif_set_xps_queue().
 */
int netif_set_xps_queue(struct net_device *dev, const struct cpumask *mask,
			u16 index)
{
	return __netif_set_xps_queue(dev, cpumask_bits(mask), index, XPS_CPUS);
}
EXPORT_SYMBOL(netif_set_xps_queue);
