// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"path"

	"github.com/meshcni/meshcni/conflist"
)

// dropIn decides that a file of our own goes into the directory named after the network.
func (d *decision) dropIn() error {
	name, doc, err := d.chainTo(d.target(d.others))
	if err != nil {
		return err
	}
	network, reason := d.dropInNetwork(name, doc)
	if reason != "" {
		return refused("no drop-in for %s: %s; choose another mode", name, reason)
	}
	if known, reads := readsDropIns(d.want.Runtime); known && !reads {
		return refused("no drop-in: %s has a libcni older than 1.3, which ignores it, and pods would bypass the mesh; choose another mode",
			d.want.Runtime)
	} else if !known {
		d.plan.Notes = append(d.plan.Notes, "it isn't known whether the runtime has libcni 1.3, which drop-ins need: "+
			"containerd 2.1 has, and CRI-O 1.34")
	}
	data, err := d.want.alone(false)
	if err != nil {
		return err
	}
	file := path.Join(network.Name, d.want.ownFile(DropIn))
	place := d.ownPlace(file, nil)
	var before []step
	switch f, there := d.dir[network.Name]; {
	case !there:
		place.MadeDirectory = true
		before = []step{{op: opMakeDirectory, file: network.Name}}
	case !f.Mode.IsDir():
		return refused("%s has the name of the network's directory, but is not a directory: remove it", network.Name)
	}
	if err := d.mayBeOurs(file); err != nil {
		return err
	}
	d.plan.Status = d.status(doc)
	d.keep(place, data, before...)
	if _, recorded := d.claim.place(d.dir.target(name)); !recorded {
		d.removeInlined(name, doc)
	}
	return d.preempted(name)
}

// dropInNetwork returns the network that a drop-in would be for, or why it is impossible.
func (d *decision) dropInNetwork(name string, doc []byte) (network conflist.Network, reason string) {
	if place, ok := d.claim.place(d.dir.target(name)); path.Ext(name) != listExtension || ok && place.Lifted != nil {
		return network, "it is a single configuration, and only a .conflist has a directory of plugins"
	}
	network, err := conflist.LoadNetwork(doc, true)
	switch {
	case err != nil:
		return network, err.Error()
	case network.OnlyInlined:
		return network, "it has loadOnlyInlinedPlugins"
	case !network.DropIns():
		return network, "its name cannot be a directory's"
	}
	return network, ""
}

// removeInlined removes the entry from the list that the drop-in is for; otherwise the runtime
// would call the plugin twice.
func (d *decision) removeInlined(name string, doc []byte) {
	edit, err := conflist.Remove(doc, d.want.Plugin.Type)
	if err == nil && edit.Changed {
		d.rewrite(step{file: d.dir.target(name), data: edit.Out, expect: doc, why: "the plugin is called once, from the drop-in"})
	}
}
