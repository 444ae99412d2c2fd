// SPDX-License-Identifier: Apache-2.0

package netfacts

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// read enters the namespace: /proc/sys/net shows that of the opening thread (proc_sys_net(5)).
func read(in *os.File) (interception.Facts, error) {
	var facts interception.Facts
	err := namespace.Run(in, func() (err error) {
		facts.IPv6, err = ipv6(os.DirFS("/proc/sys/net"))
		return err
	})
	return facts, err
}

// ipv6 reports whether an interface has IPv6, or a new one would have it ("default"). The value of
// "all" does not count by itself: writing it sets the others (ip-sysctl). A kernel without IPv6 has
// no such directory; with ipv6.disable=1 the directory may have no interfaces.
func ipv6(net fs.FS) (bool, error) {
	if _, err := fs.Stat(net, "ipv4"); err != nil {
		return false, err
	}
	interfaces, err := fs.ReadDir(net, "ipv6/conf")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	for _, i := range interfaces {
		if i.Name() == "all" {
			continue
		}
		disabled, err := fs.ReadFile(net, "ipv6/conf/"+i.Name()+"/disable_ipv6")
		if errors.Is(err, fs.ErrNotExist) {
			continue // the interface was removed meanwhile
		} else if err != nil {
			return false, err
		}
		if strings.TrimSpace(string(disabled)) != "1" {
			return true, nil
		}
	}
	return false, nil
}
