// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"context"
	"fmt"
	"maps"
	"net/netip"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// Alone tells the agent that no pod is captured in its own namespace any more: Options.InPod is not
// called again.
func (a *Agent) Alone() {
	a.host.alone.Store(true)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hostDueLocked(0)
}

// takeShared notes the members of the sets of shared pods.
func (h *host) takeShared(seen interception.State) {
	h.shared = map[netip.Addr]string{}
	for _, family := range families() {
		maps.Copy(h.shared, seen.Owners[ambient.FormerCapture{}.SharedSet(family)])
	}
}

// share makes the sets of shared pods hold these addresses of a pod if Options.InPod says so, and
// no other address of the pod.
func (a *Agent) share(ctx context.Context, e *entry, addresses []netip.Addr) error {
	h := &a.host
	if h.o.InPod == nil || h.alone.Load() {
		return nil
	}
	want := map[netip.Addr]bool{}
	if len(addresses) > 0 && a.isInPod(e.uid) {
		for _, address := range h.members.kept(addresses) {
			want[address] = true
		}
	}
	for _, family := range families() {
		if err := h.editShared(ctx, family, h.shareEdit(e.uid, family, want)); err != nil {
			return err
		}
	}
	return nil
}

// isInPod reports whether a pod is captured in its own namespace, too, or is about to be.
func (a *Agent) isInPod(uid string) bool {
	return a.options.InPod != nil && !a.host.alone.Load() && a.options.InPod(uid)
}

// shareEdit returns how the set of a family comes to hold these addresses of a pod, and no other.
func (h *host) shareEdit(uid string, family interception.Family, want map[netip.Addr]bool) interception.SetEdit {
	edit := interception.SetEdit{Add: map[netip.Addr]string{}, Remove: map[netip.Addr]string{}}
	for address := range want {
		if interception.FamilyOf(address) == family && h.shared[address] != uid {
			edit.Add[address] = uid
		}
	}
	for address, owner := range h.shared {
		if interception.FamilyOf(address) == family && owner == uid && !want[address] {
			edit.Remove[address] = uid
		}
	}
	return edit
}

func (h *host) editShared(ctx context.Context, family interception.Family, edit interception.SetEdit) error {
	if len(edit.Add)+len(edit.Remove) == 0 {
		return nil
	}
	if err := h.o.Sets.UpdateSet(ctx, h.o.Host, h.o.Owner, ambient.FormerCapture{}.SharedSet(family), edit); err != nil {
		h.members.doubt()
		return fmt.Errorf("edit the set of pods that are captured in their own namespaces, too: %w", err)
	}
	maps.Copy(h.shared, edit.Add)
	for address := range edit.Remove {
		delete(h.shared, address)
	}
	return nil
}
