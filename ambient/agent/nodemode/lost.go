// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// lose notes members that other programs have taken away, with their owners. The caller holds the
// agent's mu.
func (h *host) lose(lost map[netip.Addr]string) {
	if h.back == nil {
		h.back = map[netip.Addr]string{}
	}
	maps.Copy(h.back, lost)
}

// putBack puts members back that were lost, of pods of which the feed has not told enough to
// decide: after a start while the API server is away, such pods are known by their members alone.
// Other pods have entries, which see to that.
func (a *Agent) putBack(ctx context.Context) error {
	h := &a.host
	if !h.members.areKnown() {
		return nil
	}
	a.mu.Lock()
	maps.DeleteFunc(h.back, func(address netip.Addr, uid string) bool {
		_, _, known := a.wantedLocked(uid)
		return known || uid == "" || h.members.ownerOf(address) != ""
	})
	back := maps.Clone(h.back)
	a.mu.Unlock()
	err := h.edit(ctx, slices.Collect(maps.Keys(back)), func(edit *interception.SetEdit, address netip.Addr) { edit.Add[address] = back[address] })
	if err == nil {
		a.mu.Lock()
		maps.DeleteFunc(h.back, func(address netip.Addr, uid string) bool { return back[address] == uid })
		a.mu.Unlock()
	}
	return err
}

// loseNoMore keeps members of a sandbox that ends from being put back. The caller holds the agent's
// mu.
func (h *host) loseNoMore(uid string) {
	maps.DeleteFunc(h.back, func(_ netip.Addr, of string) bool { return of == uid })
}
