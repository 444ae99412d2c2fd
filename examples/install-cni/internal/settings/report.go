// SPDX-License-Identifier: Apache-2.0

package settings

// RecordName is the file in the run directory in which a daemon leaves its [Report].
const RecordName = "install-cni.settings"

// Report is what is in effect, and what is not, as JSON.
type Report struct {
	// Settings omits settings without effect, unless they were set.
	Settings []ReportedValue `json:"settings"`
	// Unknown lists names that look like settings but are not.
	Unknown []string `json:"unknown,omitempty"`
}

// ReportedValue is one setting.
type ReportedValue struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Source  Source `json:"source"`
	Default string `json:"default"`
	// Live reports that the setting may change while the daemon runs.
	Live bool `json:"live,omitempty"`
	// Error is the error in the value; may be empty.
	Error string `json:"error,omitempty"`
	// Offer is a newer value that is not in effect.
	Offer *ReportedOffer `json:"offer,omitempty"`
}

// ReportedOffer is a value that is not in effect.
type ReportedOffer struct {
	Value  string `json:"value"`
	Source Source `json:"source"`
	// Error is empty for a value that takes effect at the next start.
	Error string `json:"error,omitempty"`
}

// Report returns the values for people and programs. No setting is a secret.
func (l Loaded) Report() Report {
	report := Report{Settings: []ReportedValue{}, Unknown: l.Unknown}
	for _, v := range l.Values {
		if v.Setting.Inert && !v.Source.Given() {
			continue
		}
		r := ReportedValue{
			Name: v.Setting.Name, Value: v.Text, Source: v.Source, Default: v.Setting.Default, Live: v.Setting.Live, Error: errorText(v.Err),
		}
		if v.Offer != nil {
			r.Offer = &ReportedOffer{Value: v.Offer.Text, Source: v.Offer.Source, Error: errorText(v.Offer.Err)}
		}
		report.Settings = append(report.Settings, r)
	}
	return report
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
