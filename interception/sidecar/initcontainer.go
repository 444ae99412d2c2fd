// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// initContainers reports the ordinary init containers whose connections go to a proxy that starts
// after them. Whether they open any is not known. Containers that run as the proxy's user or group
// are not captured.
func (p *parser) initContainers() {
	if !p.redirect.capturesOutbound() && !p.redirect.capturesDNS() {
		return
	}
	for _, c := range p.pod.Containers {
		switch {
		case c.Name == p.dialect.Membership.ProxyContainer && c.IsSidecar():
			return // it serves all containers after it
		case !c.Init, c.IsSidecar(), p.bypasses(c):
			continue
		}
		p.warn(interception.Source{Kind: interception.SourceField, Key: "spec.initContainers", Value: c.Name},
			"it runs before the proxy, to which its connections are sent, so it has no network: "+p.wayOut())
	}
}

// bypasses reports whether a container is known to be left alone because of its ids.
func (p *parser) bypasses(c interception.Container) bool {
	user, hasUser := first(c.RunAsUser, p.pod.RunAsUser)
	group, hasGroup := first(c.RunAsGroup, p.pod.RunAsGroup)
	proxy, groups := p.redirect.Proxy, p.redirect.Outbound.Groups
	return hasUser && proxy.UIDs.Contains(interception.UID(user)) || hasGroup && proxy.GIDs.Contains(interception.GID(group)) ||
		groups.Limited && groups.Include.IsEmpty() ||
		hasGroup && (groups.Exclude.Contains(interception.GID(group)) || groups.Limited && !groups.Include.Contains(interception.GID(group)))
}

// first returns the first id that is set and valid.
func first(ids ...*int64) (id uint32, found bool) {
	for _, id := range ids {
		if id != nil {
			return uint32(*id), *id >= 0 && *id <= int64(^uint32(0))
		}
	}
	return 0, false
}

// wayOut returns the remedies for an init container.
func (p *parser) wayOut() string {
	var ways []string
	if uids := p.redirect.Proxy.UIDs.Ranges(); len(uids) > 0 {
		ways = append(ways, "run it as user "+strconv.FormatUint(uint64(uids[0].First), 10))
	}
	proxy := p.dialect.Membership.ProxyContainer
	last := fmt.Sprintf("or have %s injected as a native sidecar", proxy)
	if p.container.IsSidecar() {
		last = fmt.Sprintf("or move it after %s, which is a native sidecar", proxy)
	}
	ways = append(ways, "exclude what it connects to from capture", last)
	return strings.Join(ways, ", ")
}
