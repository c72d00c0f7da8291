// Names for what the admin's widgets leave without one, for people who listen to the page.
(() => {
  const name = () => {
    for (const box of document.querySelectorAll('.select2-container:not([data-named])')) {
      const select = box.previousElementSibling
      const label = select && select.id && document.querySelector(`label[for="${CSS.escape(select.id)}"]`)
      const text = (label && label.textContent.trim()) || (select && select.dataset.placeholder) || 'Choose'
      for (const part of box.querySelectorAll('[role=combobox], [role=textbox]')) part.setAttribute('aria-label', text)
      box.dataset.named = ''
    }
    for (const tip of document.querySelectorAll('.help-tooltip[aria-label]:not([role])')) tip.setAttribute('role', 'img')
  }
  document.addEventListener('DOMContentLoaded', () => {
    name()
    new MutationObserver(name).observe(document.body, { childList: true, subtree: true })
  })
})()
