// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// writeSysctl writes a parameter of the namespace that this thread is in, whose file is at the
// path. In a container the file system is read-only, unless the container is privileged: rp_filter
// of a link is then set by a message, for which CAP_NET_ADMIN is enough.
func writeSysctl(path, key, value string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, unix.EROFS) {
		if link, is := sourceCheckOf(key); is {
			return setSourceCheck(link, value)
		}
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	return errors.Join(err, file.Close())
}

// sourceCheckOf returns the link whose rp_filter a key names.
func sourceCheckOf(key string) (link string, is bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 4 || parts[0] != "ipv4" || parts[1] != "conf" || parts[3] != "rp_filter" {
		return "", false
	}
	return parts[2], parts[2] != "all" && parts[2] != "default" // these are no links
}

// setSourceCheck sets a link's rp_filter by rtnetlink.
func setSourceCheck(name, value string) error {
	number, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return fmt.Errorf("set rp_filter of %s: %w", name, err)
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("set rp_filter of %s: %w", name, err)
	}
	const rpFilter = 8 // IPV4_DEVCONF_RP_FILTER of linux/ip.h
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(link.Index)
	request.AddData(message)
	families := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	families.AddRtAttr(unix.AF_INET, nil).AddRtAttr(unix.IFLA_INET_CONF, nil).AddRtAttr(rpFilter, nl.Uint32Attr(uint32(number)))
	request.AddData(families)
	if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("set rp_filter of %s: %w", name, err)
	}
	return nil
}
