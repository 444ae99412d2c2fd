// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// families returns those that have a set each.
func families() []interception.Family {
	return []interception.Family{interception.IPv4, interception.IPv6}
}

// members are the addresses in the host's sets, as the agent has seen and edited them last.
type members struct {
	mu    sync.Mutex
	known bool
	has   map[interception.Family]bool // which sets there are
	owner map[netip.Addr]string        // UIDs; "" for another program's
	uids  map[string]int               // how many members each UID has
}

// take notes what was seen of the sets that there are. It returns the members that another program
// has taken away, with their owners.
func (m *members) take(has func(interception.SetName) bool, seen interception.State) (lost map[netip.Addr]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.owner
	lost = map[netip.Addr]string{}
	m.known, m.has, m.owner, m.uids = true, map[interception.Family]bool{}, map[netip.Addr]string{}, map[string]int{}
	for _, family := range families() {
		set := ambient.MeshedSet(family)
		m.has[family] = has(set)
		maps.Copy(m.owner, seen.Owners[set])
	}
	for _, uid := range m.owner {
		m.uids[uid]++
	}
	for address, uid := range before {
		if m.owner[address] != uid {
			lost[address] = uid
		}
	}
	return lost
}

// forget notes that there are no sets.
func (m *members) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known, m.has, m.owner, m.uids = false, nil, nil, nil
}

// edited notes an edit.
func (m *members) edited(edit interception.SetEdit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for address, uid := range edit.Remove {
		if owner, is := m.owner[address]; is && owner == uid {
			delete(m.owner, address)
			m.uids[uid]--
		}
	}
	for address, uid := range edit.Add {
		if former, is := m.owner[address]; is {
			m.uids[former]--
		}
		m.owner[address] = uid
		m.uids[uid]++
	}
}

// of returns the members of a pod.
func (m *members) of(uid string) (addresses []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.uids[uid] == 0 {
		return nil
	}
	for address, owner := range m.owner {
		if owner == uid {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// ownerOf returns the UID of a member; "" if the address is none, or another program's.
func (m *members) ownerOf(address netip.Addr) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owner[address]
}

// pods returns the UIDs of all pods that have a member.
func (m *members) pods() (uids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, count := range m.uids {
		if uid != "" && count > 0 {
			uids = append(uids, uid)
		}
	}
	return uids
}

// kept returns the addresses whose family has a set.
func (m *members) kept(addresses []netip.Addr) []netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !m.has[interception.FamilyOf(a)] })
}

// areKnown reports whether the sets were seen since the last doubt.
func (m *members) areKnown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known
}

// doubt notes that an edit has failed, so that the sets have to be looked at.
func (m *members) doubt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = false
}
