// SPDX-License-Identifier: Apache-2.0

package reconciler

// standalone decides that the plugin has a configuration of its own, for a meta plugin that calls it by name.
func (d *decision) standalone() error {
	name := d.want.ownFile(Standalone)
	if err := d.mayBeOurs(name); err != nil {
		return err
	}
	data, err := d.want.alone(true)
	if err != nil {
		return err
	}
	if first, err := d.dir.primary(func(other string) bool { return other != name && d.others(other) }); err != nil || first > name {
		d.plan.Notes = append(d.plan.Notes, "no other configuration sorts before "+name+
			": a container runtime that reads this directory would take the plugin alone for the node's network")
	}
	d.plan.Status = Status{Why: "a meta plugin calls the plugin, and asks none for its status"}
	d.keep(d.ownPlace(name, nil), data)
	return nil
}
