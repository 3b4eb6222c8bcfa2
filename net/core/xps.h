/* SPDX-License-Identifier: GPL-2.0 */
/* XPS, what its own files share */
#ifndef _NET_CORE_XPS_H
#define _NET_CORE_XPS_H

#include <linux/netdevice.h>

/**
 * struct xps_layout - what a map is built from
 * @nr_ids: number of CPUs or receive queues
 * @num_tc: number of traffic classes, at least 1
 * @nr_queues: number of transmit queues
 * @tc: class of each queue, below @num_tc; negative: not in the map
 * @masks: a row of BITS_TO_LONGS(@nr_ids) words for each queue
 */
struct xps_layout {
	unsigned int		nr_ids;
	unsigned int		num_tc;
	unsigned int		nr_queues;
	const s8		*tc;
	const unsigned long	*masks;
};

/* xps_map.c */
void *xps_alloc(size_t n, size_t size);
struct xps_map *xps_map_build(const struct xps_layout *layout);
int xps_mask_node(const unsigned long *mask, unsigned int nr_cpus,
		  int (*node_of)(int cpu));

/* xps.c */
unsigned int xps_nr_ids(const struct net_device *dev, enum xps_map_type type);
int xps_set_mask(struct net_device *dev, unsigned int index,
		 enum xps_map_type type, const unsigned long *mask);
void xps_get_mask(struct net_device *dev, unsigned int index,
		  enum xps_map_type type, unsigned long *mask);

#endif /* _NET_CORE_XPS_H */
