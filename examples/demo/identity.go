// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

type identity struct {
	uid interception.UID
	gid interception.GID
}

func (i identity) String() string { return fmt.Sprintf("uid %d gid %d", i.uid, i.gid) }

// proxyOf returns the identity by which the plan recognises the proxy.
func proxyOf(r sidecar.Redirect) identity {
	var i identity
	if users := r.Proxy.UIDs.Ranges(); len(users) > 0 {
		i.uid = users[0].First
	}
	if groups := r.Proxy.GIDs.Ranges(); len(groups) > 0 {
		i.gid = groups[0].First
	}
	return i
}

// applicationOf returns the identity of the pod's application: its container's, else the pod's,
// else root, since the image cannot be asked here.
func applicationOf(pod interception.Pod, name string) (identity, error) {
	c, _ := pod.Container(name)
	root := int64(0)
	uid, gid := *cmp.Or(c.RunAsUser, pod.RunAsUser, &root), *cmp.Or(c.RunAsGroup, pod.RunAsGroup, &root)
	if min(uid, gid) < 0 || max(uid, gid) >= 1<<32-1 { // (uid_t)-1 means "no id"
		return identity{}, fmt.Errorf("the application runs as user %d and group %d: write numbers from 0 to 4294967294", uid, gid)
	}
	return identity{interception.UID(uid), interception.GID(gid)}, nil
}

// hasID reports whether a file in the format of user_namespaces(7), such as /proc/self/uid_map,
// contains an id.
func hasID(path string, id uint32) (bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("find out which ids exist: %w", err)
	}
	has := false
	for line := range strings.Lines(string(text)) {
		var first, outside, count uint64
		if _, err := fmt.Sscan(line, &first, &outside, &count); err != nil {
			return false, fmt.Errorf("find out which ids exist: %s: %q: %w", path, line, err)
		}
		has = has || uint64(id) >= first && uint64(id) < first+count
	}
	return has, nil
}

// exists reports whether a process can run as i here.
func (i identity) exists() (bool, error) {
	if user, err := hasID("/proc/self/uid_map", uint32(i.uid)); err != nil || !user {
		return false, err
	}
	return hasID("/proc/self/gid_map", uint32(i.gid))
}
