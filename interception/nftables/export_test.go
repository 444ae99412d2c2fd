// SPDX-License-Identifier: Apache-2.0

package nftables

// BeforeEach is a dataplane that asks before each step: an object's id, or "table inet OWNER". An error is taken as the kernel's.
func (d *Dataplane) BeforeEach(step func(at string) error) *Dataplane {
	return &Dataplane{protocols: d.protocols, before: step}
}
