// SPDX-License-Identifier: GPL-2.0
/* XPS: the files of a transmit queue.
 *
 *	xps_cpus	mask of CPUs
 *	xps_cpus_list	the same mask as a list
 *	xps_rxqs	mask of receive queues
 *
 * A write takes effect as it stands, or fails and changes nothing. A read gives
 * what was written, whether or not the queue is in use.
 */
#include <linux/bitmap.h>
#include <linux/capability.h>
#include <linux/limits.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <net/net_namespace.h>
#include <net/netdev_lock.h>
#include <net/xps.h>

#include "net-sysfs.h"
#include "xps.h"

typedef int xps_parse_t(const char *buf, unsigned long *mask, int nr_ids);

static const char fmt_mask[] = "%*pb\n";
static const char fmt_list[] = "%*pbl\n";

/* What can't be in a mask is no mask wherever it stands. Zeros in front say
 * nothing, however many there are: one text fits machines of all sizes.
 */
static int xps_parse_mask(const char *buf, unsigned long *mask, int nr_ids)
{
	size_t len = strspn(buf, "0123456789abcdefABCDEF, \t\r");

	if (*skip_spaces(buf + len))
		return -EINVAL;

	buf += strspn(buf, "0, \t");
	return bitmap_parse(buf, UINT_MAX, mask, nr_ids);
}

static int xps_parse_list(const char *buf, unsigned long *mask, int nr_ids)
{
	int err;

	/* bitmap_parselist() would pass over a second line. */
	if (*skip_spaces(strchrnul(buf, '\n')))
		return -EINVAL;

	err = bitmap_parselist(buf, mask, nr_ids);
	return err == -ERANGE ? -EOVERFLOW : err;
}

/* CPUs belong to the machine, receive queues to the device. */
static bool xps_may_write(struct net_device *dev, enum xps_map_type type)
{
	return type == XPS_CPUS ? capable(CAP_NET_ADMIN) :
	       ns_capable(dev_net(dev)->user_ns, CAP_NET_ADMIN);
}

static ssize_t xps_show(struct netdev_queue *queue, char *buf,
			enum xps_map_type type, const char *fmt)
{
	struct net_device *dev = queue->dev;
	unsigned int nr_ids = xps_nr_ids(dev, type);
	unsigned long *mask;
	ssize_t len;

	mask = bitmap_alloc(nr_ids, GFP_KERNEL);
	if (!mask)
		return -ENOMEM;

	xps_get_mask(dev, queue - dev->_tx, type, mask);
	len = sysfs_emit(buf, fmt, nr_ids, mask);
	bitmap_free(mask);

	return buf[len - 1] == '\n' ? len : -EFBIG;
}

static int xps_apply(struct kobject *kobj, struct attribute *attr,
		     struct netdev_queue *queue, enum xps_map_type type,
		     const unsigned long *mask)
{
	struct net_device *dev = queue->dev;
	unsigned int index = queue - dev->_tx;
	int err;

	err = sysfs_rtnl_lock(kobj, attr, dev);
	if (err)
		return err;
	netdev_lock_ops(dev);

	/* The queue may have gone while we waited for the locks. */
	if (index < dev->real_num_tx_queues)
		err = xps_set_mask(dev, index, type, mask);
	else
		err = -ENODEV;

	netdev_unlock_ops(dev);
	rtnl_unlock();
	return err;
}

static ssize_t xps_store(struct kobject *kobj, struct attribute *attr,
			 struct netdev_queue *queue, const char *buf,
			 size_t len, enum xps_map_type type, xps_parse_t *parse)
{
	struct net_device *dev = queue->dev;
	unsigned int nr_ids = xps_nr_ids(dev, type);
	unsigned long *mask;
	int err;

	if (!xps_may_write(dev, type))
		return -EPERM;
	if (!netif_is_multiqueue(dev))
		return -EOPNOTSUPP;
	/* A longer text would come as two writes, each taken for a mask. */
	if (len >= PAGE_SIZE)
		return -E2BIG;
	if (strlen(buf) + 1 < len)
		return -EINVAL;

	mask = bitmap_alloc(nr_ids, GFP_KERNEL);
	if (!mask)
		return -ENOMEM;

	err = parse(buf, mask, nr_ids);
	if (!err)
		err = xps_apply(kobj, attr, queue, type, mask);
	bitmap_free(mask);

	return err ? : len;
}

ssize_t xps_cpus_show(struct kobject *kobj, struct attribute *attr,
		      struct netdev_queue *queue, char *buf)
{
	return xps_show(queue, buf, XPS_CPUS, fmt_mask);
}

ssize_t xps_cpus_store(struct kobject *kobj, struct attribute *attr,
		       struct netdev_queue *queue, const char *buf, size_t len)
{
	return xps_store(kobj, attr, queue, buf, len, XPS_CPUS, xps_parse_mask);
}

ssize_t xps_cpus_list_show(struct kobject *kobj, struct attribute *attr,
			   struct netdev_queue *queue, char *buf)
{
	return xps_show(queue, buf, XPS_CPUS, fmt_list);
}

ssize_t xps_cpus_list_store(struct kobject *kobj, struct attribute *attr,
			    struct netdev_queue *queue, const char *buf,
			    size_t len)
{
	return xps_store(kobj, attr, queue, buf, len, XPS_CPUS, xps_parse_list);
}

ssize_t xps_rxqs_show(struct kobject *kobj, struct attribute *attr,
		      struct netdev_queue *queue, char *buf)
{
	return xps_show(queue, buf, XPS_RXQS, fmt_mask);
}

ssize_t xps_rxqs_store(struct kobject *kobj, struct attribute *attr,
		       struct netdev_queue *queue, const char *buf, size_t len)
{
	return xps_store(kobj, attr, queue, buf, len, XPS_RXQS, xps_parse_mask);
}
